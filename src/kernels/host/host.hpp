// SPDX-License-Identifier: Apache-2.0
// The host's Kernels: what each kernel enqueues, and how its work is cut into blocks. Blocks follow
// from shapes alone and each is computed by one thread, so that threads never change a bit.
#pragma once

#include <bit>
#include <memory>
#include <string>

#include "training.hpp"
#include "work.hpp"

namespace foregather::kernels {

class HostKernels final : public Kernels, private HostWork {
public:
    HostKernels(device::Device& device, int threads, const ProductChoice& choice);

    TrainingKernels& training() override { return training_; }
    std::string product_name() const override { return products_.name(); }
    std::optional<double> product_seconds() const override { return products_.seconds(); }

private:
    void do_embed(Ids ids, Elements first_row, ConstSlab w, Floats x, Elements width,
                  Stream& stream) override;
    void do_rms_norm(ConstFloats x, ConstSlab w, float epsilon, Slab y, Stream& stream) override;
    void do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y, Elements tokens,
                    Stream& stream) override;
    void do_rope(Floats x, Ids positions, ConstFloats cosines, ConstFloats sines, int heads,
                 int head_dim, Stream& stream) override;
    void do_attention(Floats q, Floats k, Floats v, Ids offsets, AttentionShape shape, Slab out,
                      Floats lse, Stream& stream) override;
    void do_silu_gate(ConstFloats gate, ConstFloats up, Slab out, Stream& stream) override;
    void do_take_rows(ConstFloats x, Ids rows, Floats y, Elements width, Stream& stream) override;
    void do_head_begin(HeadState state, Stream& stream) override;
    void do_head_piece(ConstSlab x, ConstSlab w, Elements first_row, Ids targets, HeadState state,
                       Stream& stream) override;
    void do_head_end(HeadState state, Ids targets, HeadResults results, Stream& stream) override;

    // attention.cpp; T is float or Bf16, what products read.
    template <class T>
    struct AttentionInput { // rows t of q, k and v begin at t * stride
        const T* q = nullptr;
        const T* k = nullptr;
        const T* v = nullptr;
        Elements q_stride = 0, kv_stride = 0;
    };
    template <class T>
    struct Head;
    template <class T>
    void attend_all(const AttentionInput<T>& in, Ids offsets, AttentionShape shape, Slab out,
                    Floats lse, device::HostStream& host) const;
    template <class T>
    void attend(const Head<T>& head, base::Range queries, Elements document_begin,
                float* scratch) const;
    template <class T>
    void mix(const Head<T>& head, Elements queries, base::Range keys, float beta,
             float* scratch) const;
    void softmax_rows(base::Range queries, base::Range keys, Elements window, Elements dim,
                      float* scratch) const;
    void fold_logits(const float* logits, Elements n, Elements first_id, std::int32_t target,
                     const HeadState& state, std::size_t s) const; // loss.cpp

    HostTraining training_;
};

} // namespace foregather::kernels
