// SPDX-License-Identifier: Apache-2.0
// Gradients of attention on tensor cores: bf16 operands, fp32 sums, by the functions of
// tensor_attention.cuh. A block has 64 rows of its own, queries or keys, a warp 16 of them; scores
// of its rows by the others' and what is summed of them stay in the lanes' registers.
#pragma once

#include "attention_backward.cuh"
#include "tensor_attention.cuh"

namespace foregather::kernels {
namespace {

// What one launch sums. Wide heads have no registers for both gradients of keys and values.
enum class Summed { queries, keys, values, keys_and_values };

// dim: the head's width rounded up; what lies beyond the head is 0.
template <int dim>
struct TensorTiles {
    static constexpr std::size_t shared_bytes = 4 * query_rows * Tensor<dim>::stride * sizeof(Bf16);
    static constexpr int size = query_rows * Tensor<dim>::stride;

    // Own rows and the others' that are multiplied into scores: queries and keys.
    Tensor<dim> scored;
    // Those that are multiplied into gradients of weights: of outputs, and values.
    Tensor<dim> derived;

    __device__ TensorTiles() {
        auto* memory = dynamic_shared<Bf16>();
        scored.q = memory;
        scored.k = scored.v = memory + size;
        derived.q = memory + 2 * size;
        derived.k = derived.v = memory + 3 * size;
    }
};

// Begins to fetch rows of queries and of outputs' gradients.
template <int dim>
__device__ void begin_query_rows(const BackwardArrays& all, Elements begin, Elements end, int head,
                                 Bf16* queries, Bf16* gradients) {
    const Elements stride = Elements{all.in.heads} * all.in.dim;
    const int column = head * all.in.dim;
    const auto* dout = reinterpret_cast<const Bf16*>(all.dout) + 2 * begin * stride + column;
    begin_fetch<dim>(gradients, dout, 2 * stride, end - begin, all.in.dim);
    fetch<tensor_threads, dim, Tensor<dim>::stride>(queries, all.in.q + begin * stride + column,
                                                    stride, end - begin, all.in.dim);
}

// The same of keys and values, for the keys' head.
template <int dim>
__device__ void begin_key_rows(const AttentionArrays& in, Elements begin, Elements end, int head,
                               Bf16* keys, Bf16* values) {
    const Elements stride = Elements{in.kv_heads} * in.dim * 2; // packed rows lie far apart
    const Elements at = begin * stride + head * in.dim;
    begin_fetch<dim>(keys, reinterpret_cast<const Bf16*>(in.k) + at, stride, end - begin, in.dim);
    begin_fetch<dim>(values, reinterpret_cast<const Bf16*>(in.v) + at, stride, end - begin, in.dim);
}

// Scores and gradients of weights become weights and gradients of scores, 0 for keys that a query
// does not see.
template <int dim, bool of_keys>
__device__ void tensor_weigh(const Tensor<dim>& my, const AttentionArrays& in,
                             const RowBlock& block, Elements other, float (&scores)[key_tiles][4],
                             float (&along)[key_tiles][4], const QueryShared& shared) {
    constexpr float log2_e = 1.44269504088896341F; // exp(x) = 2^(log2_e x)
    const float binary = in.scale * log2_e;
    const Elements queries_end = of_keys ? block.document_end : block.end;
#pragma unroll
    for (int tile = 0; tile < key_tiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int own_row = my.row + i / 2 * 8, other_row = tile * 8 + my.column + i % 2;
            const int query_row = of_keys ? other_row : own_row;
            const Elements query = (of_keys ? other : block.begin) + query_row;
            const Elements key = of_keys ? block.begin + own_row : other + other_row;
            const bool seen = query < queries_end && key < block.end && sees(query, key, in.window);
            const float weight =
                seen ? exp2f(scores[tile][i] * binary - shared.lse[query_row] * log2_e) : 0.0F;
            scores[tile][i] = weight;
            along[tile][i] =
                seen ? weight * (along[tile][i] - shared.means[query_row]) * in.scale : 0.0F;
        }
    }
}

template <int dim>
using TensorSums = float[dim / 8][4];

template <int dim>
__device__ void write_tensor_sums(const Tensor<dim>& my, const TensorSums<dim>& sums,
                                  const AttentionArrays& in, const RowBlock& block, int heads,
                                  float* to) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const Elements row = block.begin + my.row + 8 * r;
        float* out = to + (row * heads + block.head) * in.dim;
#pragma unroll
        for (int tile = 0; tile < dim / 8; ++tile) {
            const int column = tile * 8 + my.column;
            if (row < block.end && column < in.dim) {
                store<2>(out + column, Few<2>{{sums[tile][2 * r], sums[tile][2 * r + 1]}});
            }
        }
    }
}

template <int dim>
__device__ void sum_queries(const BackwardArrays& all, const RowBlock& block) {
    auto& shared = block_shared<QueryShared>();
    const AttentionArrays& in = all.in;
    const TensorTiles<dim> my;
    TensorSums<dim> sums = {};
    begin_query_rows<dim>(all, block.begin, block.end, block.head, my.scored.q, my.derived.q);
    fetch_queries(all, block.begin, block.end, block.head, shared);
    for (Elements key = first_key_of(block, in.window); key < block.end; key += key_rows) {
        __syncthreads(); // nobody needs the last keys any more
        begin_key_rows<dim>(in, key, block.end, block.head / (in.heads / in.kv_heads), my.scored.k,
                            my.derived.k);
        arrive();
        float scores[key_tiles][4] = {};
        float along[key_tiles][4] = {};
        tensor_score(my.scored, scores);
        tensor_score(my.derived, along);
        tensor_weigh<dim, false>(my.scored, in, block, key, scores, along, shared);
        tensor_mix(my.scored, along, sums);
    }
    write_tensor_sums(my.scored, sums, in, block, in.heads, all.dq);
}

template <int dim, bool keys, bool values>
__device__ void sum_keys(const BackwardArrays& all, const RowBlock& block) {
    auto& shared = block_shared<QueryShared>();
    const AttentionArrays& in = all.in;
    const TensorTiles<dim> my;
    TensorSums<dim> key_sums = {};
    TensorSums<dim> value_sums = {};
    begin_key_rows<dim>(in, block.begin, block.end, block.head, my.scored.q, my.derived.q);
    const int shared_by = in.heads / in.kv_heads;
    const Elements last = last_query_of(block, in.window);
    for (int head = block.head * shared_by; head < (block.head + 1) * shared_by; ++head) {
        for (Elements query = block.begin; query < last; query += query_rows) {
            __syncthreads(); // nobody needs the last queries any more
            begin_query_rows<dim>(all, query, block.document_end, head, my.scored.k, my.derived.k);
            fetch_queries(all, query, block.document_end, head, shared);
            arrive();
            float scores[key_tiles][4] = {};
            float along[key_tiles][4] = {};
            tensor_score(my.scored, scores);
            if constexpr (keys) {
                tensor_score(my.derived, along);
            }
            tensor_weigh<dim, true>(my.scored, in, block, query, scores, along, shared);
            if constexpr (keys) {
                tensor_mix(my.scored, along, key_sums);
            }
            if constexpr (values) {
                tensor_mix(my.derived, scores, value_sums);
            }
        }
    }
    if constexpr (keys) {
        write_tensor_sums(my.scored, key_sums, in, block, in.kv_heads, all.dk);
    }
    if constexpr (values) {
        write_tensor_sums(my.scored, value_sums, in, block, in.kv_heads, all.dv);
    }
}

template <int dim, Summed summed>
__global__ void __launch_bounds__(tensor_threads)
    tensor_gradients_kernel(const BackwardArrays all) {
    constexpr bool of_queries = summed == Summed::queries;
    constexpr bool keys = summed == Summed::keys || summed == Summed::keys_and_values;
    constexpr bool values = summed == Summed::values || summed == Summed::keys_and_values;
    const AttentionArrays& in = all.in;
    const bool good = offsets_lead(in);
    if (!good && of_queries) {
        poison(in, all.dq, in.heads);
    }
    if (!good && keys) {
        poison(in, all.dk, in.kv_heads);
    }
    if (!good && values) {
        poison(in, all.dv, in.kv_heads);
    }
    if (!good) {
        return;
    }
    const RowBlock block = row_block_of(in, !of_queries);
    if (block.begin >= block.end) {
        return;
    }
    if constexpr (of_queries) {
        sum_queries<dim>(all, block);
    } else {
        sum_keys<dim, keys, values>(all, block);
    }
}

} // namespace
} // namespace foregather::kernels
