// SPDX-License-Identifier: Apache-2.0
// The host's TrainingKernels: what each enqueues. Blocks follow from shapes alone, as in host.hpp;
// where threads share a sum, its parts lie in the first thread's scratch and are added in order.
#pragma once

#include <memory>

#include <foregather/kernels/training.hpp>

#include "work.hpp"

namespace foregather::kernels {

class HostTraining final : public TrainingKernels, private HostWork {
public:
    explicit HostTraining(std::shared_ptr<const HostMeans> means) : HostWork(std::move(means)) {}

private:
    void do_convert(ConstFloats x, Slab y, Stream& stream) override;
    void do_product_input_gradient(ConstSlab dy, ConstSlab w, Into into, Floats dx, Elements tokens,
                                   Stream& stream) override;
    void do_product_weight_gradient(ConstSlab dy, ConstSlab x, Into into, Floats dw, Floats dbias,
                                    Elements tokens, Stream& stream) override;
    void do_rms_norm_backward(ConstFloats x, ConstSlab w, float epsilon, ConstFloats dy,
                              Into into_dx, Floats dx, Into into_dw, Floats dw,
                              Stream& stream) override;
    void do_rope_backward(Floats dx, Ids positions, ConstFloats cosines, ConstFloats sines,
                          int heads, int head_dim, Stream& stream) override;
    void do_attention_backward(ConstFloats q, ConstFloats k, ConstFloats v, ConstSlab out,
                               ConstFloats lse, Floats dout, Ids offsets, AttentionShape shape,
                               Floats dq, Floats dk, Floats dv, Stream& stream) override;
    void do_silu_gate_backward(ConstFloats gate, ConstFloats up, ConstFloats dout, Slab dgate,
                               Slab dup, Stream& stream) override;
    void do_embed_backward(Ids ids, Elements first_row, ConstFloats dx, Into into, Floats dw,
                           Elements width, Stream& stream) override;
    void do_take_rows_backward(ConstFloats dy, Ids rows, Floats dx, Elements width,
                               Stream& stream) override;
    void do_loss(HeadState state, Ids targets, Into into, View<double> sum,
                 Stream& stream) override;
    void do_head_backward(ConstSlab x, ConstSlab w, Elements first_row, Ids targets,
                          HeadState state, float scale, Into into_dx, Floats dx, Into into_dw,
                          Floats dw, Stream& stream) override;
    void do_adamw(Floats w, ConstFloats g, Floats m, Floats v, const AdamwStep& step, Slab copy,
                  Stream& stream) override;
    void do_sum_of_squares(ConstFloats x, Into into, View<double> sum, Stream& stream) override;
    void do_add(ConstSlab x, Floats accumulator, Stream& stream) override;
    void do_scale(Floats x, float factor, Stream& stream) override;
    void do_clear(Floats x, Stream& stream) override;

    void sum_rows(ConstSlab dy, Into into, Floats dbias, base::Range columns, int thread) const;

    struct NormBackward; // training_norm.cpp
    void norm_rows_backward(const NormBackward& in, base::Range rows, double* dw, int thread) const;

    template <class T>
    struct AttentionArrays; // training_attention.cpp
    template <class T>
    struct HeadBackward;
    template <class T>
    void attend_backward(const AttentionArrays<T>& in, Ids offsets, AttentionShape shape,
                         device::HostStream& host) const;
    template <class T>
    void queries_backward(const HeadBackward<T>& head, base::Range queries, base::Range document,
                          float* memory) const;
    template <class T>
    void keys_backward(const HeadBackward<T>& head, base::Range keys, base::Range document,
                       bool first, float* memory) const;
    template <class T>
    void mean_gradients(const HeadBackward<T>& head, base::Range queries, float* memory) const;
    template <class T>
    void score_gradients(const HeadBackward<T>& head, base::Range queries, base::Range keys,
                         float* memory) const;

    struct PieceBackward; // training_head.cpp
    void logit_gradients(const PieceBackward& in, base::Range rows, base::Range columns,
                         float* tile, int thread) const;
    void spread_gradients(const PieceBackward& in, base::Range rows, base::Range columns,
                          device::HostStream& host) const;
};

} // namespace foregather::kernels
