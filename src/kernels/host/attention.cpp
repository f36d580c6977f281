// SPDX-License-Identifier: Apache-2.0
// Causal attention within documents, by blocks of queries and keys with a running softmax
// (arXiv:2205.14135). Scores exist for one block at a time, whatever the length of a document.
#include "host.hpp"

#include <cmath>
#include <limits>

#include <foregather/base/error.hpp>

#include "documents.hpp"

namespace foregather::kernels {

// One query head of a pack with the key-value head that it reads. Row t begins at t * stride.
template <class T>
struct HostKernels::Head {
    const T* q = nullptr;
    const T* k = nullptr;
    const T* v = nullptr;
    Elements q_stride = 0;
    Elements kv_stride = 0; // of k and v
    Elements dim = 0;
    Elements window = 0; // keys that a query sees; 0: all
    float scale = 0;
    Slab out; // [T, H, D]
    Elements out_stride = 0, out_offset = 0;
    float* lse = nullptr; // [T, H] if it is kept
    Elements lse_stride = 0, lse_offset = 0;
    bool rounded = false; // the softmax's weights are rounded to bf16
};

namespace {

// A thread's scratch as this file uses it.
struct Scratch {
    float* scores;  // [query_block, key_block]
    float* maximum; // [query_block], of the scores so far
    float* sum;     // [query_block], of exp(score - maximum) so far
    Bf16* weights;  // [query_block, key_block], the scores' weights rounded
    float* mixed;   // [query_block, D], sums of weighted values so far

    explicit Scratch(float* memory)
        : scores(memory), maximum(memory + query_block * key_block), sum(maximum + query_block),
          weights(reinterpret_cast<Bf16*>(sum + query_block)), mixed(memory + fixed) {}

    static constexpr Elements fixed =
        query_block * key_block + 2 * query_block + query_block * key_block / 2;
};

} // namespace

// Turns the scores of a block into weights exp(score - maximum), 0 for keys that the query does not
// see, and brings the rows of `mixed`, which so far hold sums over earlier keys, to the new
// maximum.
void HostKernels::softmax_rows(base::Range queries, base::Range keys, Elements window, Elements dim,
                               float* memory) const {
    const Scratch scratch(memory);
    for (Elements r = 0; r < queries.size(); ++r) {
        float* row = scratch.scores + r * key_block;
        const Elements end = queries.begin + r + 1 - keys.begin; // of the keys seen
        const Elements stop = std::clamp(end, Elements{0}, keys.size());
        const Elements first = window > 0 ? std::clamp(end - window, Elements{0}, stop) : 0;
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
                lanes_.scale(scratch.mixed + r * dim, shrink, dim);
            }
            maximum = largest;
        }
        scratch.sum[r] += lanes_.exp_minus(row + first, stop - first, maximum);
    }
}

// mixed (+)= weights v for one block of keys.
template <class T>
void HostKernels::mix(const Head<T>& head, Elements queries, base::Range keys, float beta,
                      float* memory) const {
    const Scratch scratch(memory);
    const ProductSize size{queries, head.dim, keys.size()};
    const Matrix<const T> v{head.v + keys.begin * head.kv_stride, head.kv_stride};
    if (head.rounded) {
        for (Elements r = 0; r < queries; ++r) {
            float* row = scratch.scores + r * key_block;
            lanes_.to_bf16(row, scratch.weights + r * key_block, keys.size());
            if constexpr (std::is_same_v<T, float>) {
                lanes_.from_bf16(scratch.weights + r * key_block, row, keys.size());
            }
        }
    }
    if constexpr (std::is_same_v<T, float>) {
        products_.multiply(size, Matrix<const float>{scratch.scores, key_block}, v, beta,
                           {scratch.mixed, head.dim});
    } else {
        products_.multiply(size, Matrix<const Bf16>{scratch.weights, key_block}, v, beta,
                           {scratch.mixed, head.dim});
    }
}

// One block of queries of one document and head; at most query_block of them.
template <class T>
void HostKernels::attend(const Head<T>& head, base::Range queries, Elements document_begin,
                         float* memory) const {
    const Scratch scratch(memory);
    std::fill_n(scratch.maximum, queries.size(), -std::numeric_limits<float>::infinity());
    std::fill_n(scratch.sum, queries.size(), 0.0F);
    const Elements first_key = first_block(head.window, queries, document_begin);
    for (Elements key = first_key; key < queries.end; key += key_block) {
        const base::Range keys{key, std::min(queries.end, key + key_block)};
        products_.multiply_transposed(
            {queries.size(), keys.size(), head.dim}, head.scale,
            Matrix<const T>{head.q + queries.begin * head.q_stride, head.q_stride},
            Matrix<const T>{head.k + key * head.kv_stride, head.kv_stride}, 0.0F,
            {scratch.scores, key_block});
        softmax_rows(queries, keys, head.window, head.dim, memory);
        mix(head, queries.size(), keys, key == first_key ? 0.0F : 1.0F, memory);
    }
    for (Elements r = 0; r < queries.size(); ++r) {
        float* mixed = scratch.mixed + r * head.dim;
        lanes_.scale(mixed, 1.0F / scratch.sum[r], head.dim);
        if (head.lse != nullptr) { // in long double: the same code on every x86-64 processor
            const auto sum = static_cast<long double>(scratch.sum[r]);
            head.lse[(queries.begin + r) * head.lse_stride + head.lse_offset] =
                static_cast<float>(static_cast<long double>(scratch.maximum[r]) + std::log(sum));
        }
        const Elements at = (queries.begin + r) * head.out_stride + head.out_offset;
        if (head.out.type == base::DType::f32) {
            std::copy_n(mixed, head.dim, head.out.f32() + at);
        } else {
            lanes_.to_bf16(mixed, head.out.bf16() + at, head.dim);
        }
    }
}

template <class T>
void HostKernels::attend_all(const AttentionInput<T>& in, Ids offsets, AttentionShape shape,
                             Slab out, Floats lse, device::HostStream& host) const {
    const Elements heads = shape.heads, dim = shape.head_dim;
    const Elements shared_by = heads / shape.kv_heads;
    const Elements tokens = out.n / (heads * dim);
    const Elements query_blocks = blocks_of(tokens, query_block);
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
    host.parallel(query_blocks * heads, [&](std::int64_t b, int thread) {
        // The last queries of a pack have the most keys: begin with them.
        const Elements begin = (query_blocks - 1 - b / heads) * query_block;
        const Elements end = std::min(tokens, begin + query_block);
        const Elements h = b % heads;
        const Elements kv = h / shared_by * dim;
        const Head<T> head{in.q + h * dim,
                           in.k + kv,
                           in.v + kv,
                           in.q_stride,
                           in.kv_stride,
                           dim,
                           shape.window,
                           scale,
                           out,
                           heads * dim,
                           h * dim,
                           lse.data(),
                           heads,
                           h,
                           out.type == base::DType::bf16};
        each_document(offsets, {begin, end}, [&](base::Range queries, base::Range document) {
            attend(head, queries, document.begin, scratch_of(thread));
        });
    });
}

void HostKernels::do_attention(Floats q, Floats k, Floats v, Ids offsets, AttentionShape shape,
                               Slab out, Floats lse, Stream& stream) {
    const Elements row = Elements{shape.heads} * shape.head_dim;
    const Elements kv_row = Elements{shape.kv_heads} * shape.head_dim;
    if (Scratch::fixed + query_block * shape.head_dim > block_floats || row > block_floats) {
        base::fail("attention: heads of " + std::to_string(shape.head_dim) +
                   " do not fit the scratch");
    }
    device::HostStream& host = checked(stream);
    host.enqueue([=, this, &host] {
        check_offsets(offsets, out.n / row);
        const bool packed = out.type == base::DType::bf16 && products_.multiplies_bf16();
        if (out.type == base::DType::bf16) {
            round_rows(q, row, packed, host);
            round_rows(k, kv_row, packed, host);
            round_rows(v, kv_row, packed, host);
        }
        if (packed) {
            const auto bits = [](Floats x) { return reinterpret_cast<const Bf16*>(x.data()); };
            attend_all<Bf16>({bits(q), bits(k), bits(v), 2 * row, 2 * kv_row}, offsets, shape, out,
                             lse, host);
        } else {
            attend_all<float>({q.data(), k.data(), v.data(), row, kv_row}, offsets, shape, out, lse,
                              host);
        }
    });
}

} // namespace foregather::kernels
