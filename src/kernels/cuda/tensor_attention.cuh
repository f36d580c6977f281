// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores: bf16 operands, fp32 sums. Values arrive while scores are computed, the
// next keys while values are mixed. Each warp has 16 queries; scores, weights
// and outputs stay in its lanes' registers, since the sums of one product lie there as the next
// product takes its left operand.
#pragma once

#include <fragments.cuh>

#include "attention.cuh"
#include "lanes.cuh"

namespace foregather::kernels {
namespace {

constexpr int tensor_rows = 16; // of queries, a warp's
constexpr int tensor_threads = query_rows / tensor_rows * warp_size;
constexpr int key_tiles = key_rows / 8; // columns of scores come in tiles of 8

// dim: the head's width rounded up; what lies beyond the head is 0.
template <int dim>
struct Tensor {
    static constexpr int stride = dim + 8; // neighbouring rows lie in other banks
    static constexpr std::size_t shared_bytes = (query_rows + 2 * key_rows) * stride * sizeof(Bf16);

    Bf16* q = dynamic_shared<Bf16>(); // [query_rows, stride]
    Bf16* k = q + query_rows * stride;
    Bf16* v = k + key_rows * stride;
    int lane = static_cast<int>(threadIdx.x) % warp_size;
    int first_row = static_cast<int>(threadIdx.x) / warp_size * tensor_rows;
    int row = first_row + lane / 4; // this lane's queries: row and row + 8
    int column = lane % 4 * 2;      // of a tile, and the next
};

// Index 0 is of the lane's first query, 1 of the other.
template <int dim>
struct TensorRunning {
    float maximum[2] = {-INFINITY, -INFINITY};
    float sum[2] = {};
    float mixed[dim / 8][4] = {};
};

template <int dim>
__device__ void tensor_score(const Tensor<dim>& my, float (&scores)[key_tiles][4]) {
    constexpr int stride = Tensor<dim>::stride;
    const Bf16* q = my.q + (my.first_row + my.lane % 16) * stride + my.lane / 16 * 8;
    const Bf16* k = my.k + (my.lane % 8 + my.lane / 16 * 8) * stride + my.lane / 8 % 2 * 8;
#pragma unroll
    for (int d = 0; d < dim; d += 16) {
        unsigned a[4];
        load_matrices(a, q + d);
#pragma unroll
        for (int tile = 0; tile < key_tiles; tile += 2) {
            unsigned b[4];
            load_matrices(b, k + tile * 8 * stride + d);
            multiply_add(scores[tile], a, b[0], b[1]);
            multiply_add(scores[tile + 1], a, b[2], b[3]);
        }
    }
}

// Hides what a query does not see, where there is anything to hide.
template <int dim>
__device__ void hide(const Tensor<dim>& my, float (&scores)[key_tiles][4], Elements first_query,
                     Elements key, Elements window) {
    const Elements first = first_query + my.first_row;
    const Elements last = first + tensor_rows - 1;
    const bool all_seen = key + key_rows - 1 <= first && (window == 0 || key > last - window);
    if (all_seen) {
        return;
    }
#pragma unroll
    for (int tile = 0; tile < key_tiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (!sees(first_query + my.row + i / 2 * 8, key + tile * 8 + my.column + i % 2,
                      window)) {
                scores[tile][i] = -INFINITY;
            }
        }
    }
}

// Scores become weights exp(score - maximum); what was summed and mixed so far falls to the new
// maximum. A query that has seen nothing yet has no maximum: its weights are 0.
template <int dim>
__device__ void tensor_soften(float (&scores)[key_tiles][4], TensorRunning<dim>& running,
                              float scale) {
    const float binary = scale * 1.44269504088896341F; // exp(scale x) = 2^(binary x)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float largest = running.maximum[r]; // of scores before the scale, which is positive
#pragma unroll
        for (int tile = 0; tile < key_tiles; ++tile) {
            largest = fmaxf(largest, fmaxf(scores[tile][2 * r], scores[tile][2 * r + 1]));
        }
        largest = fmaxf(largest, __shfl_xor_sync(whole_warp, largest, 1)); // a row's four lanes
        largest = fmaxf(largest, __shfl_xor_sync(whole_warp, largest, 2));
        const float shift = largest == -INFINITY ? 0.0F : largest * binary;
        const float shrink = exp2f(running.maximum[r] * binary - shift);
        float sum = 0;
#pragma unroll
        for (int tile = 0; tile < key_tiles; ++tile) {
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; ++i) {
                scores[tile][i] = exp2f(scores[tile][i] * binary - shift);
                sum += scores[tile][i];
            }
        }
        sum += __shfl_xor_sync(whole_warp, sum, 1);
        sum += __shfl_xor_sync(whole_warp, sum, 2);
        running.maximum[r] = largest;
        running.sum[r] = running.sum[r] * shrink + sum;
#pragma unroll
        for (int tile = 0; tile < dim / 8; ++tile) {
            running.mixed[tile][2 * r] *= shrink;
            running.mixed[tile][2 * r + 1] *= shrink;
        }
    }
}

__device__ unsigned rounded_pair(float low, float high) {
    return to_bf16(low) | static_cast<unsigned>(to_bf16(high)) << 16;
}

template <int dim>
__device__ void tensor_mix(const Tensor<dim>& my, const float (&weights)[key_tiles][4],
                           float (&mixed)[dim / 8][4]) {
    constexpr int stride = Tensor<dim>::stride;
    const Bf16* v = my.v + my.lane % 16 * stride + my.lane / 16 * 8;
#pragma unroll
    for (int tile = 0; tile < key_tiles; tile += 2) {
        const float(&low)[4] = weights[tile];
        const float(&high)[4] = weights[tile + 1];
        const unsigned a[4] = {rounded_pair(low[0], low[1]), rounded_pair(low[2], low[3]),
                               rounded_pair(high[0], high[1]), rounded_pair(high[2], high[3])};
#pragma unroll
        for (int d = 0; d < dim; d += 16) {
            unsigned b[4];
            load_matrices_transposed(b, v + tile * 8 * stride + d);
            multiply_add(mixed[d / 8], a, b[0], b[1]);
            multiply_add(mixed[d / 8 + 1], a, b[2], b[3]);
        }
    }
}

template <int dim>
__device__ void tensor_write(const Tensor<dim>& my, const TensorRunning<dim>& running,
                             const AttentionArrays& in, const RowBlock& block, Bf16* out) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const Elements query = block.begin + my.row + 8 * r;
        const float inverse = 1.0F / running.sum[r];
        if (in.lse != nullptr && query < block.end && my.column == 0) {
            in.lse[query * in.heads + block.head] =
                running.maximum[r] * in.scale + logf(running.sum[r]);
        }
        Bf16* row = out + (query * in.heads + block.head) * in.dim;
#pragma unroll
        for (int tile = 0; tile < dim / 8; ++tile) {
            const int column = tile * 8 + my.column;
            if (query < block.end && column < in.dim) {
                store<2>(row + column, Few<2>{{running.mixed[tile][2 * r] * inverse,
                                               running.mixed[tile][2 * r + 1] * inverse}});
            }
        }
    }
}

struct PackedRows {
    float* k;
    float* v;
    int width;
};

// Rounds each row of k (y = 0) or v (y = 1) to bf16, into the first half of where it lies: every
// block of queries reads them, and reads half as much.
__global__ void __launch_bounds__(tensor_threads) pack_rows_kernel(const PackedRows rows) {
    float* row = (blockIdx.y == 0 ? rows.k : rows.v) + Elements{blockIdx.x} * rows.width;
    auto* packed = reinterpret_cast<Bf16*>(row);
    for (int begin = 0; begin < rows.width; begin += tensor_threads * 2) {
        const int column = begin + static_cast<int>(threadIdx.x) * 2;
        const Few<2> few = column < rows.width ? load<2>(row + column) : Few<2>{};
        __syncthreads(); // what is written from here on lies where all has been read
        if (column < rows.width) {
            store<2>(packed + column, few);
        }
    }
}

// Begins to fetch rows of packed keys or values; they are there after arrive().
template <int dim>
__device__ void begin_fetch(Bf16* to, const Bf16* from, Elements stride, Elements rows, int width) {
    constexpr int groups = dim / 8;
    if (width % 8 != 0) { // too few neighbours for copies that run on their own
        fetch<tensor_threads, dim, Tensor<dim>::stride>(to, from, stride, rows, width);
        return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < key_rows * groups; i += tensor_threads) {
        const int row = i / groups;
        const int column = i % groups * 8;
        const bool holds = row < rows && column < width;
        begin_copy_16(to + row * Tensor<dim>::stride + column,
                      holds ? from + row * stride + column : from, !holds);
    }
}

// What this block began to fetch is there, and what it read before may be overwritten.
__device__ inline void arrive() {
    finish_copies();
    __syncthreads();
}

template <int dim>
__global__ void __launch_bounds__(tensor_threads)
    tensor_attention_kernel(const AttentionArrays in, Bf16* out) {
    if (!offsets_lead(in)) {
        poison(in, out, in.heads);
        return;
    }
    const RowBlock block = row_block_of(in);
    if (block.begin >= block.end) {
        return;
    }
    const Tensor<dim> my;
    TensorRunning<dim> running;
    const Elements q_stride = Elements{in.heads} * in.dim;
    const Elements kv_stride = Elements{in.kv_heads} * in.dim * 2; // packed rows lie far apart
    const int kv_column = block.head / (in.heads / in.kv_heads) * in.dim;
    const auto* k = reinterpret_cast<const Bf16*>(in.k) + kv_column;
    const auto* v = reinterpret_cast<const Bf16*>(in.v) + kv_column;
    const auto begin = [&](Bf16* to, const Bf16* from, Elements key) {
        begin_fetch<dim>(to, from + key * kv_stride, kv_stride, block.end - key, in.dim);
    };
    Elements key = first_key_of(block, in.window);
    begin(my.k, k, key);
    fetch<tensor_threads, dim, Tensor<dim>::stride>(
        my.q, in.q + block.begin * q_stride + block.head * in.dim, q_stride,
        block.end - block.begin, in.dim);
    for (; key < block.end; key += key_rows) {
        arrive(); // the keys
        begin(my.v, v, key);
        float scores[key_tiles][4] = {};
        tensor_score(my, scores);
        arrive(); // the values
        if (key + key_rows < block.end) {
            begin(my.k, k, key + key_rows);
        }
        hide(my, scores, block.begin, key, in.window);
        tensor_soften(scores, running, in.scale);
        tensor_mix(my, scores, running.mixed);
    }
    tensor_write(my, running, in, block, out);
}

} // namespace
} // namespace foregather::kernels
