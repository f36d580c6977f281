// SPDX-License-Identifier: Apache-2.0
// A row of logits as a block holds it, and the k largest of all rows so far: a heap with the last
// of the list in front, so that one comparison tells whether a logit is in it.
#pragma once

#include <limits>

#include <foregather/kernels/kernels.hpp>

#include "cuda.hpp"
#include "lanes.cuh"

namespace foregather::kernels {

inline constexpr int fold_threads = 512;
inline constexpr int row_part = static_cast<int>(logit_columns) / fold_threads;
inline constexpr std::int32_t no_id = std::numeric_limits<std::int32_t>::max();

// Longer lists are worked on where they lie in the device's memory.
inline constexpr Elements top_in_shared = 4096;

inline std::size_t top_shared_bytes(Elements k) {
    return k <= top_in_shared ? static_cast<std::size_t>(k) * sizeof(TopToken) : 0;
}

// A thread's logits of a row: groups of 4 neighbours. What lies beyond the row is -infinity, which
// changes no maximum and adds 0 to a sum that is a number.
struct RowPart {
    float logit[row_part];
};

// Where in the row the i-th logit of this thread is.
__device__ inline int place_of(int i) {
    return (i / 4 * fold_threads + static_cast<int>(threadIdx.x)) * 4 + i % 4;
}

// The row's memory goes on for logit_columns, whatever n is.
__device__ inline RowPart load_row(const float* from, int n) {
    RowPart row;
#pragma unroll
    for (int i = 0; i < row_part; i += 4) {
        const bool holds_any = place_of(i) < n;
        const Few<4> few = holds_any ? load<4>(from + place_of(i)) : Few<4>{};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            row.logit[i + j] = place_of(i + j) < n ? few.v[j] : -INFINITY;
        }
    }
    return row;
}

// The order of top tokens, total since ids differ: a list does not depend on the order of pieces.
__device__ inline bool before(const TopToken& a, const TopToken& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

__device__ inline void replace_front(TopToken* heap, Elements k, const TopToken& candidate) {
    Elements at = 0;
    for (Elements child = 1; child < k; child = 2 * at + 1) {
        if (child + 1 < k && before(heap[child], heap[child + 1])) {
            ++child;
        }
        if (!before(candidate, heap[child])) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = candidate;
}

struct TopShared {
    TopToken candidates[fold_threads];
    unsigned masks[fold_threads / warp_size]; // which of a warp's candidates belong in the heap
};

// Takes a row's logits into the heap of its top tokens. The whole block calls it.
__device__ inline void fold_top(const RowPart& row, int n, Elements first_id, TopToken* top,
                                Elements k) {
    auto& shared = block_shared<TopShared>();
    const bool stays = k <= top_in_shared;
    TopToken* heap = stays ? dynamic_shared<TopToken>() : top;
    for (Elements i = threadIdx.x; stays && i < k; i += fold_threads) {
        heap[i] = top[i];
    }
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < row_part; ++i) {
        float logit = 0;
#pragma unroll
        for (int j = 0; j < row_part; ++j) { // an index that only the run knows would spill the row
            logit = i == j ? row.logit[j] : logit;
        }
        const int place = place_of(i);
        const TopToken candidate{logit, static_cast<std::int32_t>(first_id + place)};
        // A NaN is before nothing.
        const bool belongs = place < n && before(candidate, heap[0]);
        const unsigned mask = __ballot_sync(whole_warp, belongs);
        shared.candidates[threadIdx.x] = candidate;
        if (threadIdx.x % warp_size == 0) {
            shared.masks[threadIdx.x / warp_size] = mask;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 0; w < fold_threads / warp_size; ++w) {
                for (unsigned left = shared.masks[w]; left != 0; left &= left - 1) {
                    const int lane = __ffs(static_cast<int>(left)) - 1;
                    const TopToken& next = shared.candidates[w * warp_size + lane];
                    if (before(next, heap[0])) {
                        replace_front(heap, k, next);
                    }
                }
            }
        }
        __syncthreads();
    }
    for (Elements i = threadIdx.x; stays && i < k; i += fold_threads) {
        top[i] = heap[i];
    }
}

} // namespace foregather::kernels
