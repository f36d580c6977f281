// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix, column by column, in double: first of fixed blocks of rows, then
// of the blocks in their order. What a matrix holds is said by a functor.
#pragma once

#include <algorithm>

#include "lanes.cuh"

namespace foregather::kernels {
namespace {

constexpr int column_threads = 64;
constexpr Elements fewest_block_rows = 8;
constexpr Elements most_row_blocks = 256;

// How rows are cut into blocks, whose sums fit so many doubles.
struct ColumnBlocks {
    Elements rows = 0, width = 0, block = 0, blocks = 0;

    ColumnBlocks(Elements all_rows, Elements columns, Elements most_parts)
        : rows(all_rows), width(columns) {
        const Elements room = std::clamp(most_parts / width, Elements{1}, most_row_blocks);
        block = std::max(fewest_block_rows, (rows + room - 1) / room);
        blocks = (rows + block - 1) / block;
    }
};

// parts [blocks, width]; terms(row, column) is what is summed.
template <class Terms>
__global__ void __launch_bounds__(column_threads)
    column_parts_kernel(const Terms terms, const ColumnBlocks cut, double* parts) {
    const Elements column = Elements{blockIdx.x} * column_threads + threadIdx.x;
    if (column >= cut.width) {
        return;
    }
    const Elements begin = blockIdx.y * cut.block;
    const Elements end = min(begin + cut.block, cut.rows);
    double sum = 0;
#pragma unroll 4
    for (Elements row = begin; row < end; ++row) {
        sum += static_cast<double>(terms(row, column));
    }
    parts[blockIdx.y * cut.width + column] = sum;
}

template <class T> // float
__global__ void __launch_bounds__(column_threads)
    add_column_parts_kernel(const double* parts, const ColumnBlocks cut, bool add, T* to) {
    const Elements column = Elements{blockIdx.x} * column_threads + threadIdx.x;
    if (column >= cut.width) {
        return;
    }
    double sum = add ? static_cast<double>(to[column]) : 0.0;
    for (Elements block = 0; block < cut.blocks; ++block) {
        sum += parts[block * cut.width + column];
    }
    to[column] = static_cast<T>(sum);
}

} // namespace
} // namespace foregather::kernels
