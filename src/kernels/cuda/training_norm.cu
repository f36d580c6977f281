// SPDX-License-Identifier: Apache-2.0
// Gradients of the RMS norm. With r = rsqrt(mean(x^2) + epsilon): dx = r (w dy) - x r^3 / C
// sum(w dy x), dw = the sum over rows of dy x r. Rows first say their factors, since dx may lie
// where dy does and the columns' sums read that.
#include "training.hpp"

#include "columns.cuh"
#include "lanes.cuh"

namespace foregather::kernels {
namespace {

constexpr int block_threads = 256;
constexpr int block_warps = block_threads / warp_size;
constexpr Elements warp_width = 1024; // rows up to this wide are a warp's, wider ones a block's

// dx = inverse * (w dy) + slope * x.
struct RowFactors {
    float inverse, slope;
};

struct PairShared {
    double squares[block_warps], along[block_warps];
};

// Both sums over the threads that share a row, the same in all of them.
template <int row_threads>
__device__ void add_row(double& squares, double& along) {
    squares = warp_sum(squares);
    along = warp_sum(along);
    if constexpr (row_threads != warp_size) {
        auto& shared = block_shared<PairShared>();
        if (threadIdx.x % warp_size == 0) {
            shared.squares[threadIdx.x / warp_size] = squares;
            shared.along[threadIdx.x / warp_size] = along;
        }
        __syncthreads();
        squares = along = 0;
        for (int w = 0; w < block_warps; ++w) {
            squares += shared.squares[w];
            along += shared.along[w];
        }
    }
}

template <int row_threads, int n, class W>
__global__ void __launch_bounds__(block_threads)
    norm_factors_kernel(const float* x, const W* w, const float* dy, float epsilon,
                        RowFactors* factors, Elements rows, Elements width) {
    constexpr int block_rows = block_threads / row_threads;
    const Elements row = Elements{blockIdx.x} * block_rows + threadIdx.x / row_threads;
    const Elements first = Elements{threadIdx.x % row_threads} * n;
    if (row >= rows) { // a whole warp, of a kernel without barriers: else block_rows is 1
        return;
    }
    double squares = 0;
    double along = 0;
    for (Elements i = first; i < width; i += row_threads * n) {
        const Few<n> in = load<n>(x + row * width + i);
        const Few<n> gradient = load<n>(dy + row * width + i);
        const Few<n> gain = load<n>(w + i);
        for (int j = 0; j < n; ++j) {
            const auto value = static_cast<double>(in.v[j]);
            squares += value * value;
            along += static_cast<double>(gradient.v[j] * gain.v[j]) * value;
        }
    }
    add_row<row_threads>(squares, along);
    if (first == 0) {
        const auto count = static_cast<double>(width);
        const double inverse = 1.0 / sqrt(squares / count + static_cast<double>(epsilon));
        factors[row] = {static_cast<float>(inverse),
                        static_cast<float>(-along / count * inverse * inverse * inverse)};
    }
}

struct GainTerms {
    const float* x;
    const float* dy;
    const RowFactors* factors;
    Elements width;

    __device__ float operator()(Elements row, Elements column) const {
        const Elements at = row * width + column;
        return x[at] * factors[row].inverse * dy[at];
    }
};

// dx may be dy.
template <int n, class W>
__global__ void __launch_bounds__(block_threads)
    norm_backward_kernel(const float* x, const W* w, const float* dy, const RowFactors* factors,
                         bool add, float* dx, Elements groups, Elements width) {
    const Elements at = (Elements{blockIdx.x} * block_threads + threadIdx.x) * n;
    if (at >= groups * n) {
        return;
    }
    const Elements row = at / width;
    const RowFactors factor = factors[row];
    const Few<n> in = load<n>(x + at);
    const Few<n> gradient = load<n>(dy + at);
    const Few<n> gain = load<n>(w + (at - row * width));
    Few<n> out = add ? load<n>(dx + at) : Few<n>{};
    for (int j = 0; j < n; ++j) {
        out.v[j] += gradient.v[j] * gain.v[j] * factor.inverse;
        out.v[j] += in.v[j] * factor.slope;
    }
    store<n>(dx + at, out);
}

} // namespace

void CudaTraining::do_rms_norm_backward(ConstFloats x, ConstSlab w, float epsilon, ConstFloats dy,
                                        Into into_dx, Floats dx, Into into_dw, Floats dw,
                                        Stream& stream) {
    constexpr Elements parts_bytes = training_scratch_bytes / 2;
    const Elements width = w.n, entries = static_cast<Elements>(x.size()), rows = entries / width;
    const ColumnBlocks cut(rows, width, parts_bytes / 8);
    const View<double> parts = scratch<double>("rms_norm_backward", 0, cut.blocks * width);
    const View<RowFactors> factors = scratch<RowFactors>("rms_norm_backward", parts_bytes, rows);
    const auto count = static_cast<double>(entries);
    with_type(w.type, [&]<class W>(W) {
        const auto* gain = reinterpret_cast<const W*>(w.data);
        const bool fours = cut_into<4>(width, x.data(), gain, dy.data(), dx.data());
        const auto run = [&](auto kernel, int row_threads) {
            launch("norm_factors", +kernel,
                   {blocks_of(rows, block_threads / row_threads), block_threads},
                   {{reads(x), reads(w), reads(dy), writes(factors)}, 5.0 * count}, stream,
                   x.data(), gain, dy.data(), epsilon, factors.data(), rows, width);
        };
        if (width <= warp_width) {
            run(fours ? norm_factors_kernel<warp_size, 4, W> : norm_factors_kernel<warp_size, 1, W>,
                warp_size);
        } else {
            run(fours ? norm_factors_kernel<block_threads, 4, W>
                      : norm_factors_kernel<block_threads, 1, W>,
                block_threads);
        }
        launch("norm_gain_parts", column_parts_kernel<GainTerms>,
               {dim3(blocks_of(width, column_threads), static_cast<unsigned>(cut.blocks)),
                column_threads},
               {{reads(x), reads(dy), reads(factors.data(), rows), writes(parts)}, 3.0 * count},
               stream, GainTerms{x.data(), dy.data(), factors.data(), width}, cut, parts.data());
        const Elements groups = fours ? entries / 4 : entries;
        launch(
            "norm_backward", fours ? norm_backward_kernel<4, W> : norm_backward_kernel<1, W>,
            {blocks_of(groups, block_threads), block_threads},
            {{reads(x), reads(w), reads(dy), reads(factors.data(), rows), writes(dx)}, 5.0 * count},
            stream, x.data(), gain, dy.data(), factors.data(), into_dx == Into::add, dx.data(),
            groups, width);
    });
    launch("norm_gain", add_column_parts_kernel<float>,
           {blocks_of(width, column_threads), column_threads},
           {{reads(parts.data(), cut.blocks * width), writes(dw)},
            static_cast<double>(cut.blocks * width)},
           stream, parts.data(), cut, into_dw == Into::add, dw.data());
}

} // namespace foregather::kernels
