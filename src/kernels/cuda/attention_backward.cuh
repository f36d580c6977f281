// SPDX-License-Identifier: Apache-2.0
// Gradients of attention by blocks, from weights that are computed again with the log-sum-exp
// (arXiv:2307.08691, algorithm 2), in true fp32. A block sums dq of some queries over keys, or dk
// and dv of some keys over queries, so that no sum is shared; it does both alike, with its own rows
// and tiles of the others'.
#pragma once

#include "attention.cuh"
#include "lanes.cuh"

namespace foregather::kernels {

struct BackwardArrays {
    AttentionArrays in;
    const float* dout;  // [T, H, D]; rounded where k and v are
    const float* lse;   // [T, H]
    const float* means; // [T, H] the weights' gradients, averaged by the weights
    float* dq;          // [T, H, D]
    float* dk;          // [T, K, D]
    float* dv;
};

namespace {

// What is known of the queries of a tile.
struct QueryShared {
    float lse[query_rows], means[query_rows];
};

__device__ inline void fetch_queries(const BackwardArrays& all, Elements begin, Elements end,
                                     int head, QueryShared& shared) {
    const auto i = static_cast<int>(threadIdx.x);
    if (i < query_rows) {
        const Elements at = (begin + i) * all.in.heads + head;
        const bool holds = begin + i < end;
        shared.lse[i] = holds ? all.lse[at] : 0.0F;
        shared.means[i] = holds ? all.means[at] : 0.0F;
    }
}

// Behind the last query that sees one of the block's keys.
__device__ inline Elements last_query_of(const RowBlock& block, Elements window) {
    return window > 0 ? min(block.document_end, block.end - 1 + window) : block.document_end;
}

// Threads are a square: thread (y, x) has rows 4 y .. 4 y + 3 of the block's own, rows x + 16 j of
// the others, and of each slice of columns those from x * columns on.
constexpr int tile_side = 16;
constexpr int tile_threads = tile_side * tile_side;
constexpr int tile_rows = query_rows / tile_side;
constexpr int tile_stride = key_rows + 4;

// dim: the head's width, rounded up. Rows come in slices of their columns: of all of them there
// would be no room for.
template <int dim>
struct Slices {
    static constexpr int width = dim < 64 ? dim : 64;
    static constexpr int count = dim / width;
    static constexpr int stride = width + 4; // neighbouring rows lie in other banks
    static constexpr int columns = width / tile_side;
    static constexpr std::size_t shared_bytes =
        (2 * query_rows * stride + 2 * query_rows * tile_stride) * sizeof(float);

    float* own = dynamic_shared<float>(); // [query_rows, stride]
    float* other = own + query_rows * stride;
    float* weights = other + key_rows * stride;         // [query_rows, tile_stride] own by others
    float* slopes = weights + query_rows * tile_stride; // gradients of scores
    int x = static_cast<int>(threadIdx.x) % tile_side;
    int y = static_cast<int>(threadIdx.x) / tile_side;
};

template <int dim>
using SliceSums = float[tile_rows][dim / tile_side];

// A head's rows in memory, from the first of a tile on.
struct HeadRows {
    const float* from;
    Elements stride, count;
    int width;
};

template <int dim>
__device__ void fetch_slice(float* to, const HeadRows& rows, int slice) {
    const int first = slice * Slices<dim>::width;
    fetch<tile_threads, Slices<dim>::width, Slices<dim>::stride>(to, rows.from + first, rows.stride,
                                                                 rows.count, rows.width - first);
}

// products += own others^T.
template <int dim>
__device__ void multiply_rows(const Slices<dim>& my, const HeadRows& own, const HeadRows& others,
                              float (&products)[tile_rows][tile_rows]) {
    constexpr int stride = Slices<dim>::stride;
#pragma unroll 1
    for (int slice = 0; slice < Slices<dim>::count; ++slice) {
        __syncthreads(); // nobody needs the last slices any more
        fetch_slice<dim>(my.own, own, slice);
        fetch_slice<dim>(my.other, others, slice);
        __syncthreads();
#pragma unroll 4
        for (int d = 0; d < Slices<dim>::width; d += 4) {
            Few<4> a[tile_rows], b[tile_rows];
#pragma unroll
            for (int i = 0; i < tile_rows; ++i) {
                a[i] = load<4>(my.own + (my.y * tile_rows + i) * stride + d);
                b[i] = load<4>(my.other + (my.x + i * tile_side) * stride + d);
            }
#pragma unroll
            for (int i = 0; i < tile_rows; ++i) {
#pragma unroll
                for (int j = 0; j < tile_rows; ++j) {
#pragma unroll
                    for (int l = 0; l < 4; ++l) {
                        products[i][j] += a[i].v[l] * b[j].v[l];
                    }
                }
            }
        }
    }
}

// sums += tile others, for the tile that all threads have left in shared memory.
template <int dim>
__device__ void multiply_tile(const Slices<dim>& my, const float* tile, const HeadRows& others,
                              SliceSums<dim>& sums) {
    constexpr int columns = Slices<dim>::columns;
#pragma unroll
    for (int slice = 0; slice < Slices<dim>::count; ++slice) {
        __syncthreads(); // the tile is there, and nobody needs the last slice any more
        fetch_slice<dim>(my.other, others, slice);
        __syncthreads();
#pragma unroll 2
        for (int row = 0; row < key_rows; row += 4) {
            Few<4> factors[tile_rows];
#pragma unroll
            for (int i = 0; i < tile_rows; ++i) {
                factors[i] = load<4>(tile + (my.y * tile_rows + i) * tile_stride + row);
            }
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const Few<columns> few =
                    load<columns>(my.other + (row + k) * Slices<dim>::stride + my.x * columns);
#pragma unroll
                for (int i = 0; i < tile_rows; ++i) {
#pragma unroll
                    for (int l = 0; l < columns; ++l) {
                        sums[i][slice * columns + l] += factors[i].v[k] * few.v[l];
                    }
                }
            }
        }
    }
}

// Scores and gradients of weights become weights and gradients of scores, 0 for keys that a query
// does not see.
template <int dim, bool of_keys>
__device__ void weigh_tile(const Slices<dim>& my, const AttentionArrays& in, const RowBlock& block,
                           Elements other, const float (&scores)[tile_rows][tile_rows],
                           const float (&along)[tile_rows][tile_rows], const QueryShared& shared) {
    const Elements queries_end = of_keys ? block.document_end : block.end;
#pragma unroll
    for (int i = 0; i < tile_rows; ++i) {
#pragma unroll
        for (int j = 0; j < tile_rows; ++j) {
            const int own_row = my.y * tile_rows + i, other_row = my.x + j * tile_side;
            const int query_row = of_keys ? other_row : own_row;
            const Elements query = (of_keys ? other : block.begin) + query_row;
            const Elements key = of_keys ? block.begin + own_row : other + other_row;
            float weight = 0;
            float slope = 0;
            if (query < queries_end && key < block.end && sees(query, key, in.window)) {
                weight = expf(scores[i][j] * in.scale - shared.lse[query_row]);
                slope = weight * (along[i][j] - shared.means[query_row]) * in.scale;
            }
            if constexpr (of_keys) {
                my.weights[own_row * tile_stride + other_row] = weight;
            }
            my.slopes[own_row * tile_stride + other_row] = slope;
        }
    }
}

// What one tile of others, from the row `other` on, adds to the sums: to dq, or to dk and dv by one
// query head.
template <int dim, bool of_keys>
__device__ void add_tile(const Slices<dim>& my, const BackwardArrays& all, const RowBlock& block,
                         Elements other, int head, SliceSums<dim>& sums,
                         SliceSums<dim>& value_sums) {
    auto& shared = block_shared<QueryShared>();
    const AttentionArrays& in = all.in;
    const Elements query = of_keys ? other : block.begin, key = of_keys ? block.begin : other;
    const Elements queries_end = of_keys ? block.document_end : block.end;
    const Elements q_stride = Elements{in.heads} * in.dim;
    const Elements kv_stride = Elements{in.kv_heads} * in.dim;
    const Elements q_at = query * q_stride + head * in.dim;
    const Elements kv_at = key * kv_stride + head / (in.heads / in.kv_heads) * in.dim;
    const HeadRows q{in.q + q_at, q_stride, queries_end - query, in.dim};
    const HeadRows dout{all.dout + q_at, q_stride, queries_end - query, in.dim};
    const HeadRows k{in.k + kv_at, kv_stride, block.end - key, in.dim};
    const HeadRows v{in.v + kv_at, kv_stride, block.end - key, in.dim};
    fetch_queries(all, query, queries_end, head, shared);
    float scores[tile_rows][tile_rows] = {};
    float along[tile_rows][tile_rows] = {};
    multiply_rows(my, of_keys ? k : q, of_keys ? q : k, scores);
    multiply_rows(my, of_keys ? v : dout, of_keys ? dout : v, along);
    weigh_tile<dim, of_keys>(my, in, block, other, scores, along, shared);
    multiply_tile(my, my.slopes, of_keys ? q : k, sums);
    if constexpr (of_keys) {
        multiply_tile(my, my.weights, dout, value_sums);
    }
}

template <int dim>
__device__ void write_sums(const Slices<dim>& my, const SliceSums<dim>& sums,
                           const AttentionArrays& in, const RowBlock& block, int heads, float* to) {
    constexpr int columns = Slices<dim>::columns;
#pragma unroll
    for (int i = 0; i < tile_rows; ++i) {
        const Elements row = block.begin + my.y * tile_rows + i;
        float* out = to + (row * heads + block.head) * in.dim;
#pragma unroll
        for (int c = 0; c < dim / tile_side; ++c) {
            const int column = c / columns * Slices<dim>::width + my.x * columns + c % columns;
            if (row < block.end && column < in.dim) {
                out[column] = sums[i][c];
            }
        }
    }
}

template <int dim>
__global__ void __launch_bounds__(tile_threads, dim <= 64 ? 2 : 1)
    query_gradients_kernel(const BackwardArrays all) {
    const AttentionArrays& in = all.in;
    if (!offsets_lead(in)) {
        poison(in, all.dq, in.heads);
        return;
    }
    const RowBlock block = row_block_of(in);
    if (block.begin >= block.end) {
        return;
    }
    const Slices<dim> my;
    SliceSums<dim> sums = {};
    for (Elements key = first_key_of(block, in.window); key < block.end; key += key_rows) {
        add_tile<dim, false>(my, all, block, key, block.head, sums, sums);
    }
    write_sums(my, sums, in, block, in.heads, all.dq);
}

template <int dim>
__global__ void __launch_bounds__(tile_threads, dim <= 64 ? 2 : 1)
    key_gradients_kernel(const BackwardArrays all) {
    const AttentionArrays& in = all.in;
    if (!offsets_lead(in)) {
        poison(in, all.dk, in.kv_heads);
        poison(in, all.dv, in.kv_heads);
        return;
    }
    const RowBlock block = row_block_of(in, true);
    if (block.begin >= block.end) {
        return;
    }
    const Slices<dim> my;
    SliceSums<dim> sums = {};
    SliceSums<dim> value_sums = {};
    const int shared_by = in.heads / in.kv_heads;
    const Elements queries_end = last_query_of(block, in.window);
    for (int head = block.head * shared_by; head < (block.head + 1) * shared_by; ++head) {
        for (Elements query = block.begin; query < queries_end; query += query_rows) {
            add_tile<dim, true>(my, all, block, query, head, sums, value_sums);
        }
    }
    write_sums(my, sums, in, block, in.kv_heads, all.dk);
    write_sums(my, value_sums, in, block, in.kv_heads, all.dv);
}

} // namespace
} // namespace foregather::kernels
