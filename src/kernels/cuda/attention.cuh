// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention share: which queries and keys a block works on, found from the
// offsets of the documents where they lie, and what a query sees.
#pragma once

#include <algorithm>
#include <cmath>

#include "cuda.hpp"
#include "lanes.cuh"

namespace foregather::kernels {

inline constexpr int query_rows = 64; // queries of a block, all of one document
inline constexpr int key_rows = 64;   // keys that are in shared memory at a time

struct AttentionArrays {
    const float* q; // [T, H, D]
    const float* k; // [T, K, D]
    const float* v;
    const std::int32_t* offsets; // [documents + 1]
    int documents;
    int heads, kv_heads, dim;
    Elements tokens, window;
    float scale;
    float* lse; // [T, H] or null
};

inline AttentionArrays attention_arrays(ConstFloats q, ConstFloats k, ConstFloats v, Ids offsets,
                                        const AttentionShape& shape, Floats lse) {
    const Elements row = Elements{shape.heads} * shape.head_dim;
    return {q.data(),
            k.data(),
            v.data(),
            offsets.data(),
            static_cast<int>(offsets.size()) - 1,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            static_cast<Elements>(q.size()) / row,
            shape.window,
            static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim))),
            lse.data()};
}

// Multiplies and adds of one product if each query sees half of the tokens before the pack's end,
// or its window: where documents end, the host does not know.
inline double attention_flops(const AttentionArrays& in) {
    const auto tokens = static_cast<double>(in.tokens);
    const double seen =
        in.window > 0 ? std::min(static_cast<double>(in.window), tokens / 2) : tokens / 2;
    return 2.0 * tokens * seen * in.heads * in.dim;
}

// A document's blocks of queries are numbered from offset / query_rows + its own number on. These
// ranges never overlap, so a block finds its document by bisection and the host need not know the
// offsets; numbers between them belong to no block of queries.
inline unsigned query_blocks(const AttentionArrays& in) {
    return static_cast<unsigned>(in.tokens / query_rows + max(in.documents, 1));
}

struct RowBlock {
    Elements begin = 0, end = 0;             // tokens; none: nothing to do
    Elements document = 0, document_end = 0; // its tokens
    int head = 0;
};

struct OffsetsShared {
    unsigned bad[32]; // of each warp: offsets that go back or past the end
};

// Do the offsets lead from 0 up to the last token? The same answer in all threads of the block.
__device__ inline bool offsets_lead(const AttentionArrays& in) {
    auto& shared = block_shared<OffsetsShared>();
    bool good = in.documents > 0 && in.offsets[0] == 0 && in.offsets[in.documents] == in.tokens;
    for (int d = static_cast<int>(threadIdx.x); d < in.documents;
         d += static_cast<int>(blockDim.x)) {
        good = good && in.offsets[d] <= in.offsets[d + 1];
    }
    const unsigned bad = __ballot_sync(whole_warp, !good);
    if (threadIdx.x % warp_size == 0) {
        shared.bad[threadIdx.x / warp_size] = bad;
    }
    __syncthreads();
    unsigned any = 0;
    for (unsigned w = 0; w < blockDim.x / warp_size; ++w) {
        any |= shared.bad[w];
    }
    return any == 0;
}

// The last queries of a pack have the most keys: the first blocks take them. Of keys it is the
// first.
__device__ inline RowBlock row_block_of(const AttentionArrays& in, bool of_keys = false) {
    const auto heads = static_cast<unsigned>(of_keys ? in.kv_heads : in.heads);
    const Elements number = blockIdx.x / heads;
    const Elements block = of_keys ? number : gridDim.x / heads - 1 - number;
    int document = 0;
    for (int end = in.documents; end - document > 1;) { // document's range begins at most here
        const int middle = (document + end) / 2;
        (in.offsets[middle] / query_rows + middle <= block ? document : end) = middle;
    }
    const Elements first = in.offsets[document];
    const Elements begin = first + (block - (first / query_rows + document)) * query_rows;
    const Elements stop = in.offsets[document + 1];
    return {begin, min(begin + query_rows, stop), first, stop,
            static_cast<int>(blockIdx.x % heads)};
}

// Outputs [T, all_heads, D] of this block's share of tokens become NaN.
template <class T>
__device__ void poison(const AttentionArrays& in, T* out, int all_heads) {
    const auto heads = static_cast<unsigned>(all_heads);
    const Elements head = blockIdx.x % heads;
    const Elements begin = Elements{blockIdx.x / heads} * query_rows;
    for (Elements t = begin; t < min(begin + query_rows, in.tokens); ++t) {
        for (int i = static_cast<int>(threadIdx.x); i < in.dim; i += static_cast<int>(blockDim.x)) {
            store<1>(out + (t * all_heads + head) * in.dim + i, Few<1>{{not_a_number()}});
        }
    }
}

// Keys of a document come in blocks that begin with it: a window that hides nothing, or another
// place in the pack, changes no bit.
__device__ inline Elements first_key_of(const RowBlock& block, Elements window) {
    const Elements seen =
        window > 0 ? max(block.document, block.begin + 1 - window) : block.document;
    return block.document + (seen - block.document) / key_rows * key_rows;
}

__device__ inline bool sees(Elements query, Elements key, Elements window) {
    return key <= query && (window == 0 || key > query - window);
}

// A head's rows into shared memory, rounded to T: up to key_rows of them, zeros beyond them and
// beyond the head's width.
template <int threads, int dim, int to_stride, int n, class T, class From>
__device__ void fetch_rows(T* to, const From* from, Elements stride, int rows, int width) {
    constexpr int groups = dim / n;
    for (int i = static_cast<int>(threadIdx.x); i < key_rows * groups; i += threads) {
        const int row = i / groups;
        const int column = i % groups * n;
        const bool holds = row < rows && column < width;
        store<n>(to + row * to_stride + column,
                 holds ? load<n>(from + row * stride + column) : Few<n>{});
    }
}

template <int threads, int dim, int to_stride, class T, class From>
__device__ void fetch(T* to, const From* from, Elements stride, Elements rows, int width) {
    static_assert(key_rows == query_rows && dim % 4 == 0);
    const int count = static_cast<int>(min(rows, Elements{key_rows}));
    if (width % 4 == 0) {
        fetch_rows<threads, dim, to_stride, 4>(to, from, stride, count, width);
    } else {
        fetch_rows<threads, dim, to_stride, 2>(to, from, stride, count, width);
    }
}

// Calls f with the first of the widths that dim fits into, as a constant.
template <int first, int... more, class F>
void with_width(int dim, F f) {
    if constexpr (sizeof...(more) > 0) {
        if (dim > first) {
            with_width<more...>(dim, f);
            return;
        }
    }
    f(std::integral_constant<int, first>{});
}

} // namespace foregather::kernels
