// SPDX-License-Identifier: Apache-2.0
// The host's Kernels: what each kernel enqueues, and how its work is cut into blocks. Blocks follow
// from shapes alone and each is computed by one thread, so that threads never change a bit.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <string>

#include <foregather/device/device.hpp>
#include <foregather/device/host_stream.hpp>
#include <foregather/kernels/host_kernels.hpp>
#include <foregather/kernels/lanes.hpp>

#include "timed_products.hpp"

namespace foregather::kernels {

class HostKernels final : public Kernels {
public:
    HostKernels(device::Device& device, int threads, const ProductChoice& choice);

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
                      Stream& stream) override;
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
                    device::HostStream& host) const;
    template <class T>
    void attend(const Head<T>& head, base::Range queries, Elements document_begin,
                float* scratch) const;
    template <class T>
    void mix(const Head<T>& head, Elements queries, base::Range keys, float beta,
             float* scratch) const;
    void softmax_rows(base::Range queries, base::Range keys, Elements window, Elements dim,
                      float* scratch) const;
    void round_rows(Floats x, Elements width, bool packed, device::HostStream& host) const;
    // c = a b^T + beta c of bf16 operands, whatever the library offers.
    void multiply_bf16(ProductSize size, Matrix<const Bf16> a, Matrix<const Bf16> b, float beta,
                       Matrix<float> c, int thread) const; // product.cpp
    void fold_logits(const float* logits, Elements n, Elements first_id, std::int32_t target,
                     const HeadState& state, std::size_t s) const; // loss.cpp

    // Enqueues body(begin, end, thread) for [0, rows) cut into blocks of `block` rows.
    template <class Body>
    void enqueue_rows(Stream& stream, Elements rows, Elements block, Body body) const {
        device::HostStream& host = checked(stream);
        host.enqueue([&host, rows, block, body] {
            host.parallel(blocks_of(rows, block), [&](std::int64_t b, int thread) {
                body(b * block, std::min(rows, (b + 1) * block), thread);
            });
        });
    }

    static Elements blocks_of(Elements n, Elements block) { return (n + block - 1) / block; }
    // Throws Error(failed) if the stream has more threads than there is scratch for.
    device::HostStream& checked(Stream& stream) const;
    float* scratch_of(int thread) const;

    TimedProducts products_;
    const Lanes& lanes_;
    int threads_;
    device::Buffer<float> scratch_; // [threads, scratch_floats]
};

// Rows of x that one product takes: fewer would pack the weights too often, more would leave
// threads without work. (On a Zen 4 core oneDNN multiplies as fast at 128 rows as at 1024.)
inline constexpr Elements product_rows = 128;
inline constexpr Elements product_columns = 768;
inline constexpr Elements head_columns = 512; // vocabulary rows whose logits exist at a time

inline constexpr Elements query_block = 64;
inline constexpr Elements key_block = 128;

// bf16 operands are widened in blocks of this many columns and terms of the sum, for a library that
// multiplies fp32 alone.
inline constexpr Elements wide_columns = 256;
inline constexpr Elements wide_terms = 512;

// A thread's scratch: first logits [product_rows, head_columns], or what attention.cpp keeps of a
// block, or rows of a norm; then widened operands.
inline constexpr Elements block_floats = 2 * product_rows * head_columns;
inline constexpr Elements scratch_floats =
    block_floats + 128 * wide_terms + wide_columns * wide_terms;
static_assert(base::bytes_of(scratch_floats, base::DType::f32) == host_scratch_bytes);

// Throws Error(failed) unless the host can compute with this type of weight: fp32 or bf16.
void require_computable(ConstSlab w, const char* kernel);

} // namespace foregather::kernels
