// SPDX-License-Identifier: Apache-2.0
// RMS norm, its mean square summed in double. A row is read from memory once: what the second loop
// reads of it lies in the cache.
#include "cuda.hpp"

#include "lanes.cuh"

namespace foregather::kernels {
namespace {

constexpr int block_threads = 256;
constexpr int block_warps = block_threads / warp_size;
constexpr Elements warp_width = 1024; // rows up to this wide are a warp's, wider ones a block's

struct NormShared {
    double sums[block_warps];
};

// The sum over the threads that share a row, the same in all of them.
template <int row_threads>
__device__ double row_sum(double mine) {
    const double sum = warp_sum(mine);
    if constexpr (row_threads == warp_size) {
        return sum;
    } else {
        auto& shared = block_shared<NormShared>();
        if (threadIdx.x % warp_size == 0) {
            shared.sums[threadIdx.x / warp_size] = sum;
        }
        __syncthreads();
        double whole = 0;
        for (int w = 0; w < block_warps; ++w) {
            whole += shared.sums[w];
        }
        return whole;
    }
}

template <int row_threads, int n, class W, class Y>
__global__ void __launch_bounds__(block_threads)
    rms_norm_kernel(const float* x, const W* w, float epsilon, Y* y, Elements rows,
                    Elements width) {
    constexpr int block_rows = block_threads / row_threads;
    const Elements row = Elements{blockIdx.x} * block_rows + threadIdx.x / row_threads;
    const Elements first = Elements{threadIdx.x % row_threads} * n;
    if (row >= rows) { // a whole warp, of a kernel without barriers: else block_rows is 1
        return;
    }
    const float* in = x + row * width;
    double mine = 0;
    for (Elements i = first; i < width; i += row_threads * n) {
        const Few<n> few = load<n>(in + i);
        for (int j = 0; j < n; ++j) {
            const auto value = static_cast<double>(few.v[j]);
            mine += value * value;
        }
    }
    const double mean_square = row_sum<row_threads>(mine) / static_cast<double>(width);
    const auto factor = static_cast<float>(1.0 / sqrt(mean_square + static_cast<double>(epsilon)));
    for (Elements i = first; i < width; i += row_threads * n) {
        Few<n> few = load<n>(in + i);
        const Few<n> gain = load<n>(w + i);
        for (int j = 0; j < n; ++j) {
            few.v[j] = few.v[j] * factor * gain.v[j];
        }
        store<n>(y + row * width + i, few);
    }
}

} // namespace

void CudaKernels::do_rms_norm(ConstFloats x, ConstSlab w, float epsilon, Slab y, Stream& stream) {
    const Elements width = w.n;
    const Elements rows = static_cast<Elements>(x.size()) / width;
    const Work work{{reads(x), reads(w), writes(y)}, 4.0 * static_cast<double>(x.size())};
    with_type(w.type, [&]<class W>(W) {
        with_type(y.type, [&]<class Y>(Y) {
            const auto* gain = reinterpret_cast<const W*>(w.data);
            auto* out = reinterpret_cast<Y*>(y.data);
            const auto run = [&](auto kernel, int row_threads) {
                const Shape shape{blocks_of(rows, block_threads / row_threads), block_threads};
                launch("rms_norm", +kernel, shape, work, stream, x.data(), gain, epsilon, out, rows,
                       width);
            };
            const bool fours = cut_into<4>(width, x.data(), gain, out);
            if (width <= warp_width) {
                run(fours ? rms_norm_kernel<warp_size, 4, W, Y>
                          : rms_norm_kernel<warp_size, 1, W, Y>,
                    warp_size);
            } else {
                run(fours ? rms_norm_kernel<block_threads, 4, W, Y>
                          : rms_norm_kernel<block_threads, 1, W, Y>,
                    block_threads);
            }
        });
    });
}

} // namespace foregather::kernels
