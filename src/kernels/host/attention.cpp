// SPDX-License-Identifier: Apache-2.0
// Causal attention within documents, by blocks of queries and keys with a running softmax
// (arXiv:2205.14135). Scores exist for one block at a time, whatever the length of a document.
#include "host.hpp"

#include <cmath>
#include <limits>

#include <foregather/base/error.hpp>

namespace foregather::kernels {

// One query head of a pack with the key-value head that it reads. Row t begins at t * stride.
struct HostKernels::Head {
    const float* q = nullptr;
    const float* k = nullptr;
    const float* v = nullptr;
    float* out = nullptr;
    Elements q_stride = 0;  // of q and out
    Elements kv_stride = 0; // of k and v
    Elements dim = 0;
    Elements window = 0; // keys that a query sees; 0: all
    float scale = 0;
};

namespace {

// A thread's scratch as this file uses it.
struct Scratch {
    float* scores;  // [query_block, key_block]
    float* maximum; // [query_block], of the scores so far
    float* sum;     // [query_block], of exp(score - maximum) so far

    explicit Scratch(float* memory)
        : scores(memory), maximum(memory + query_block * key_block), sum(maximum + query_block) {}
};

void check_offsets(Ids offsets, Elements tokens) {
    if (offsets.front() != 0 || offsets.back() != tokens ||
        !std::is_sorted(offsets.begin(), offsets.end())) {
        base::fail("attention: offsets of " + std::to_string(offsets.size() - 1) +
                   " documents do not lead from 0 up to " + std::to_string(tokens) + " tokens");
    }
}

} // namespace

// The first key block of a document that one of the queries sees. Blocks begin where they would
// without a window, so that one that hides nothing changes no bit.
Elements HostKernels::first_block(const Head& head, base::Range queries, Elements document_begin) {
    const Elements seen = head.window > 0
                              ? std::max(document_begin, queries.begin + 1 - head.window)
                              : document_begin;
    return document_begin + (seen - document_begin) / key_block * key_block;
}

// Turns the scores of a block into weights exp(score - maximum), 0 for keys that the query does not
// see, and brings out's rows, which so far hold sums over earlier keys, to the new maximum.
void HostKernels::softmax_rows(base::Range queries, base::Range keys, const Head& head,
                               float* memory) const {
    const Scratch scratch(memory);
    for (Elements r = 0; r < queries.size(); ++r) {
        float* row = scratch.scores + r * key_block;
        const Elements end = queries.begin + r + 1 - keys.begin; // of the keys seen
        const Elements stop = std::clamp(end, Elements{0}, keys.size());
        const Elements first =
            head.window > 0 ? std::clamp(end - head.window, Elements{0}, stop) : 0;
        std::fill(row, row + first, 0.0F);
        std::fill(row + stop, row + keys.size(), 0.0F);
        if (first == stop) {
            continue;
        }
        float& maximum = scratch.maximum[r];
        const float largest = lanes_.largest(row + first, stop - first);
        if (largest > maximum) {
            float shrink = maximum;
            lanes_.exp_minus(&shrink, 1, largest);
            if (shrink != 1.0F && scratch.sum[r] != 0.0F) {
                scratch.sum[r] *= shrink;
                lanes_.scale(head.out + (queries.begin + r) * head.q_stride, shrink, head.dim);
            }
            maximum = largest;
        }
        scratch.sum[r] += lanes_.exp_minus(row + first, stop - first, maximum);
    }
}

// One block of queries of one document and head; at most query_block of them.
void HostKernels::attend(const Head& head, base::Range queries, Elements document_begin,
                         float* memory) const {
    const Scratch scratch(memory);
    std::fill_n(scratch.maximum, queries.size(), -std::numeric_limits<float>::infinity());
    std::fill_n(scratch.sum, queries.size(), 0.0F);
    float* out = head.out + queries.begin * head.q_stride;
    const Elements first_key = first_block(head, queries, document_begin);
    for (Elements key = first_key; key < queries.end; key += key_block) {
        const base::Range keys{key, std::min(queries.end, key + key_block)};
        blas_.multiply_transposed({queries.size(), keys.size(), head.dim}, head.scale,
                                  {head.q + queries.begin * head.q_stride, head.q_stride},
                                  {head.k + key * head.kv_stride, head.kv_stride}, 0.0F,
                                  {scratch.scores, key_block});
        softmax_rows(queries, keys, head, memory);
        blas_.multiply({queries.size(), head.dim, keys.size()}, {scratch.scores, key_block},
                       {head.v + key * head.kv_stride, head.kv_stride},
                       key == first_key ? 0.0F : 1.0F, {out, head.q_stride});
    }
    for (Elements r = 0; r < queries.size(); ++r) {
        lanes_.scale(out + r * head.q_stride, 1.0F / scratch.sum[r], head.dim);
    }
}

void HostKernels::do_attention(ConstFloats q, ConstFloats k, ConstFloats v, Ids offsets,
                               AttentionShape shape, Slab out, Stream& stream) {
    const Elements heads = shape.heads, dim = shape.head_dim;
    const Elements shared_by = heads / shape.kv_heads;
    const Elements tokens = static_cast<Elements>(q.size()) / (heads * dim);
    const Elements query_blocks = blocks_of(tokens, query_block);
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
    device::HostStream& host = checked(stream);
    host.enqueue([=, this, &host] {
        check_offsets(offsets, tokens);
        host.parallel(query_blocks * heads, [&](std::int64_t b, int thread) {
            // The last queries of a pack have the most keys: begin with them.
            const Elements begin = (query_blocks - 1 - b / heads) * query_block;
            const Elements end = std::min(tokens, begin + query_block);
            const Elements h = b % heads;
            const Elements kv = h / shared_by * dim;
            const Head head{q.data() + h * dim,
                            k.data() + kv,
                            v.data() + kv,
                            out.f32() + h * dim,
                            heads * dim,
                            shape.kv_heads * dim,
                            dim,
                            shape.window,
                            scale};
            for (Elements t = begin; t < end;) {
                const auto next = std::upper_bound(offsets.begin(), offsets.end(), t);
                const Elements stop = std::min<Elements>(end, *next);
                attend(head, {t, stop}, *(next - 1), scratch_of(thread));
                t = stop;
            }
        });
    });
}

} // namespace foregather::kernels
