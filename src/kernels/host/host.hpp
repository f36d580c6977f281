// SPDX-License-Identifier: Apache-2.0
// The host's Kernels: what each kernel enqueues, and how its work is cut into blocks. Blocks follow
// from shapes alone and each is computed by one thread, so that threads never change a bit.
#pragma once

#include <algorithm>
#include <string>

#include <foregather/device/device.hpp>
#include <foregather/device/host_stream.hpp>
#include <foregather/kernels/host_kernels.hpp>
#include <foregather/kernels/lanes.hpp>

#include "openblas.hpp"

namespace foregather::kernels {

class HostKernels final : public Kernels {
public:
    HostKernels(device::Device& device, int threads, const ProductChoice& choice);

    std::string product_name() const override { return blas_.name(); }

private:
    void do_embed(Ids ids, Elements first_row, ConstSlab w, Floats x, Elements width,
                  Stream& stream) override;
    void do_rms_norm(ConstFloats x, ConstSlab w, float epsilon, Slab y, Stream& stream) override;
    void do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y, Elements tokens,
                    Stream& stream) override;
    void do_rope(Floats x, Ids positions, ConstFloats cosines, ConstFloats sines, int heads,
                 int head_dim, Stream& stream) override;
    void do_attention(ConstFloats q, ConstFloats k, ConstFloats v, Ids offsets,
                      AttentionShape shape, Slab out, Stream& stream) override;
    void do_silu_gate(ConstFloats gate, ConstFloats up, Slab out, Stream& stream) override;
    void do_take_rows(ConstFloats x, Ids rows, Floats y, Elements width, Stream& stream) override;
    void do_head_begin(HeadState state, Stream& stream) override;
    void do_head_piece(ConstSlab x, ConstSlab w, Elements first_row, Ids targets, HeadState state,
                       Stream& stream) override;
    void do_head_end(HeadState state, Ids targets, HeadResults results, Stream& stream) override;

    struct Head; // attention.cpp: one query head and its key-value head
    static Elements first_block(const Head& head, base::Range queries, Elements document_begin);
    void attend(const Head& head, base::Range queries, Elements document_begin,
                float* scratch) const;
    void softmax_rows(base::Range queries, base::Range keys, const Head& head,
                      float* scratch) const;
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

    OpenBlas blas_;
    const Lanes& lanes_;
    int threads_;
    device::Buffer<float> scratch_; // [threads, scratch_floats]
};

// Rows of x that one product takes. Larger blocks are faster (98 % of one call at 256 rows, 90 % at
// 128, on a Zen 4 core), smaller ones leave work for every thread.
constexpr Elements product_rows(Elements tokens) { return tokens < 1024 ? 128 : 256; }
inline constexpr Elements product_columns = 768;
inline constexpr Elements head_columns = 512; // vocabulary rows whose logits exist at a time

inline constexpr Elements query_block = 64;
inline constexpr Elements key_block = 128;

// A thread's scratch: logits [256, head_columns], or scores [query_block, key_block] with the rows'
// running maximum and sum.
inline constexpr Elements scratch_floats =
    std::max(product_rows(1024) * head_columns, query_block* key_block + 2 * query_block);
static_assert(base::bytes_of(scratch_floats, base::DType::f32) == host_scratch_bytes);

// The elements of a weight that the host can compute with. Throws Error(failed) for other types.
const float* weight(ConstSlab w, const char* kernel);

} // namespace foregather::kernels
