// SPDX-License-Identifier: Apache-2.0
// Gradients of attention by blocks, from weights that are computed again with the log-sum-exp
// (arXiv:2307.08691, algorithm 2). Queries and keys are two rounds, so that no sum is shared.
#include "training.hpp"

#include <cmath>
#include <type_traits>

#include <foregather/base/error.hpp>

#include "documents.hpp"

namespace foregather::kernels {

// T is float or Bf16, what products read. Rows t begin at t * stride.
template <class T>
struct HostTraining::AttentionArrays {
    const T* q = nullptr;
    const T* k = nullptr;
    const T* v = nullptr;
    const T* dout = nullptr;
    Elements q_stride = 0;  // of q and dout
    Elements kv_stride = 0; // of k and v
    ConstSlab out;          // [T, H, D]
    ConstFloats lse;        // [T, H]
    Floats dq, dk, dv;
};

// One query head with the key-value head that it reads.
template <class T>
struct HostTraining::HeadBackward {
    AttentionArrays<T> all;
    Elements dim = 0, window = 0, heads = 0, kv_heads = 0, head = 0, kv_head = 0;
    float scale = 0;

    HeadBackward(const AttentionArrays<T>& arrays, const AttentionShape& shape, Elements h)
        : all(arrays), dim(shape.head_dim), window(shape.window), heads(shape.heads),
          kv_heads(shape.kv_heads), head(h), kv_head(h / (heads / kv_heads)),
          scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)))) {}

    Matrix<const T> queries(const T* from, Elements t) const {
        return {from + t * all.q_stride + head * dim, all.q_stride};
    }
    Matrix<const T> keys(const T* from, Elements t) const {
        return {from + t * all.kv_stride + kv_head * dim, all.kv_stride};
    }
    Matrix<float> dqueries(Elements t) const {
        return {all.dq.data() + (t * heads + head) * dim, heads * dim};
    }
    Matrix<float> dkeys(Floats to, Elements t) const {
        return {to.data() + (t * kv_heads + kv_head) * dim, kv_heads * dim};
    }
};

namespace {

// A thread's scratch as this file uses it.
struct Scratch {
    float* weights; // [query_block, key_block] softmax
    float* scores;  // [query_block, key_block] gradients of the weights, then of the scores
    Bf16* weight_bits;
    Bf16* score_bits; // both rounded
    float* mean;      // [query_block] the weights' gradients, averaged by the weights
    float* row;       // [2, D]

    explicit Scratch(float* memory)
        : weights(memory), scores(weights + block),
          weight_bits(reinterpret_cast<Bf16*>(scores + block)), score_bits(weight_bits + block),
          mean(memory + 3 * block), row(mean + query_block) {}

    static constexpr Elements block = query_block * key_block;
    static constexpr Elements fixed = 3 * block + query_block;

    template <class T>
    Matrix<const T> products_of(float* floats, Bf16* bits) const {
        if constexpr (std::is_same_v<T, float>) {
            return {floats, key_block};
        } else {
            return {bits, key_block};
        }
    }
};

} // namespace

// mean[r] = sum over the head's entries of out * dout, which is that of weights * dweights.
template <class T>
void HostTraining::mean_gradients(const HeadBackward<T>& head, base::Range queries,
                                  float* memory) const {
    const Scratch scratch(memory);
    for (Elements t = queries.begin; t < queries.end; ++t) {
        const Elements at = (t * head.heads + head.head) * head.dim;
        const float* out = scratch.row;
        if (head.all.out.type == base::DType::f32) {
            out = head.all.out.f32() + at;
        } else {
            lanes_.from_bf16(head.all.out.bf16() + at, scratch.row, head.dim);
        }
        const T* dout = head.queries(head.all.dout, t).data;
        const float* wide = scratch.row + head.dim;
        if constexpr (std::is_same_v<T, float>) {
            wide = dout;
        } else {
            lanes_.from_bf16(dout, scratch.row + head.dim, head.dim);
        }
        scratch.mean[t - queries.begin] = static_cast<float>(lanes_.dot(out, wide, head.dim));
    }
}

// Weights and gradients of scores of a block; both are 0 for keys that a query does not see.
template <class T>
void HostTraining::score_gradients(const HeadBackward<T>& head, base::Range queries,
                                   base::Range keys, float* memory) const {
    const Scratch scratch(memory);
    const ProductSize size{queries.size(), keys.size(), head.dim};
    products_.multiply_transposed(size, head.scale, head.queries(head.all.q, queries.begin),
                                  head.keys(head.all.k, keys.begin), 0.0F,
                                  {scratch.weights, key_block});
    products_.multiply_transposed(size, 1.0F, head.queries(head.all.dout, queries.begin),
                                  head.keys(head.all.v, keys.begin), 0.0F,
                                  {scratch.scores, key_block});
    for (Elements r = 0; r < queries.size(); ++r) {
        const Elements t = queries.begin + r;
        const Elements stop = std::clamp(t + 1 - keys.begin, Elements{0}, keys.size());
        const Elements first =
            head.window > 0 ? std::clamp(t + 1 - keys.begin - head.window, Elements{0}, stop) : 0;
        float* weights = scratch.weights + r * key_block;
        float* scores = scratch.scores + r * key_block;
        for (float* row : {weights, scores}) {
            std::fill(row, row + first, 0.0F);
            std::fill(row + stop, row + keys.size(), 0.0F);
        }
        const auto entry = static_cast<std::size_t>(t * head.heads + head.head);
        lanes_.exp_minus(weights + first, stop - first, head.all.lse[entry]);
        lanes_.softmax_backward(weights + first, scratch.mean[r], head.scale, scores + first,
                                stop - first);
        if (head.all.out.type == base::DType::bf16) {
            Bf16* weight_bits = scratch.weight_bits + r * key_block;
            Bf16* score_bits = scratch.score_bits + r * key_block;
            lanes_.to_bf16(weights, weight_bits, keys.size());
            lanes_.to_bf16(scores, score_bits, keys.size());
            if constexpr (std::is_same_v<T, float>) {
                lanes_.from_bf16(weight_bits, weights, keys.size());
                lanes_.from_bf16(score_bits, scores, keys.size());
            }
        }
    }
}

// dq of a block of queries.
template <class T>
void HostTraining::queries_backward(const HeadBackward<T>& head, base::Range queries,
                                    base::Range document, float* memory) const {
    const Scratch scratch(memory);
    mean_gradients(head, queries, memory);
    const Elements first_key = first_block(head.window, queries, document.begin);
    for (Elements key = first_key; key < queries.end; key += key_block) {
        const base::Range keys{key, std::min(queries.end, key + key_block)};
        score_gradients(head, queries, keys, memory);
        products_.multiply({queries.size(), head.dim, keys.size()},
                           scratch.template products_of<T>(scratch.scores, scratch.score_bits),
                           head.keys(head.all.k, key), key == first_key ? 0.0F : 1.0F,
                           head.dqueries(queries.begin));
    }
}

// What one query head adds to dk and dv of a block of keys; the first one sets them.
template <class T>
void HostTraining::keys_backward(const HeadBackward<T>& head, base::Range keys,
                                 base::Range document, bool first, float* memory) const {
    const Scratch scratch(memory);
    const Elements seen_until =
        head.window > 0 ? std::min(document.end, keys.end - 1 + head.window) : document.end;
    for (Elements query = keys.begin; query < seen_until; query += query_block) {
        const base::Range queries{query, std::min(document.end, query + query_block)};
        mean_gradients(head, queries, memory);
        score_gradients(head, queries, keys, memory);
        const ProductSize size{keys.size(), head.dim, queries.size()};
        const float beta = first && query == keys.begin ? 0.0F : 1.0F;
        products_.multiply_outer(
            size, scratch.template products_of<T>(scratch.weights, scratch.weight_bits),
            head.queries(head.all.dout, query), beta, head.dkeys(head.all.dv, keys.begin));
        products_.multiply_outer(
            size, scratch.template products_of<T>(scratch.scores, scratch.score_bits),
            head.queries(head.all.q, query), beta, head.dkeys(head.all.dk, keys.begin));
    }
}

template <class T>
void HostTraining::attend_backward(const AttentionArrays<T>& in, Ids offsets, AttentionShape shape,
                                   device::HostStream& host) const {
    const Elements heads = shape.heads, kv_heads = shape.kv_heads;
    const Elements tokens = in.out.n / (heads * shape.head_dim);
    const Elements query_blocks = blocks_of(tokens, query_block);
    host.parallel(query_blocks * heads, [&](std::int64_t b, int thread) {
        // As in attention(): the last queries have the most keys. Of keys it is the first.
        const Elements begin = (query_blocks - 1 - b / heads) * query_block;
        const HeadBackward<T> head(in, shape, b % heads);
        each_document(offsets, {begin, std::min(tokens, begin + query_block)},
                      [&](base::Range queries, base::Range document) {
                          queries_backward(head, queries, document, scratch_of(thread));
                      });
    });
    host.parallel(blocks_of(tokens, key_block) * kv_heads, [&](std::int64_t b, int thread) {
        const Elements begin = b / kv_heads * key_block;
        const Elements shared_by = heads / kv_heads, first = b % kv_heads * shared_by;
        each_document(offsets, {begin, std::min(tokens, begin + key_block)},
                      [&](base::Range keys, base::Range document) {
                          for (Elements h = first; h < first + shared_by; ++h) {
                              keys_backward(HeadBackward<T>(in, shape, h), keys, document,
                                            h == first, scratch_of(thread));
                          }
                      });
    });
}

void HostTraining::do_attention_backward(ConstFloats q, ConstFloats k, ConstFloats v, ConstSlab out,
                                         ConstFloats lse, Floats dout, Ids offsets,
                                         AttentionShape shape, Floats dq, Floats dk, Floats dv,
                                         Stream& stream) {
    require_computable(out, "attention_backward");
    const Elements row = Elements{shape.heads} * shape.head_dim;
    const Elements kv_row = Elements{shape.kv_heads} * shape.head_dim;
    if (Scratch::fixed + 2 * shape.head_dim > block_floats || row > block_floats) {
        base::fail("attention_backward: heads of " + std::to_string(shape.head_dim) +
                   " do not fit the scratch");
    }
    device::HostStream& host = checked(stream);
    host.enqueue([=, this, &host] {
        check_offsets(offsets, out.n / row);
        // attention() packed q, k and v under the same conditions.
        const bool packed = out.type == base::DType::bf16 && products_.multiplies_bf16();
        if (out.type == base::DType::bf16) {
            round_rows(dout, row, packed, host);
        }
        if (packed) {
            const auto bits = [](ConstFloats x) { return reinterpret_cast<const Bf16*>(x.data()); };
            attend_backward<Bf16>(
                {bits(q), bits(k), bits(v), bits(dout), 2 * row, 2 * kv_row, out, lse, dq, dk, dv},
                offsets, shape, host);
        } else {
            attend_backward<float>(
                {q.data(), k.data(), v.data(), dout.data(), row, kv_row, out, lse, dq, dk, dv},
                offsets, shape, host);
        }
    });
}

} // namespace foregather::kernels
