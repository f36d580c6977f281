// SPDX-License-Identifier: Apache-2.0
// Each block copies every so-manieth chunk, and begins none before its time.
#include "paced_copy.hpp"

#include "global_clock.cuh"
#include "launch.cuh"

namespace foregather::device_bench {
namespace {

constexpr int threads = 512;

__global__ void __launch_bounds__(threads)
    paced_copy_kernel(const uint4* from, uint4* to, std::int64_t chunks, double ns_per_round) {
    constexpr std::int64_t words = paced_chunk / static_cast<std::int64_t>(sizeof(uint4));
    const std::uint64_t begin = global_clock_ns();
    std::int64_t round = 0;
    for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x, ++round) {
        if (threadIdx.x == 0) {
            const auto due =
                begin + static_cast<std::uint64_t>(ns_per_round * static_cast<double>(round));
            while (global_clock_ns() < due) {
            }
        }
        __syncthreads();
        for (std::int64_t i = threadIdx.x; i < words; i += threads) {
            to[chunk * words + i] = from[chunk * words + i];
        }
    }
}

} // namespace

void paced_copy(base::View<const std::byte> from, base::View<std::byte> to, int blocks,
                double bytes_per_second, device::Stream& stream) {
    const auto chunks = static_cast<std::int64_t>(from.size()) / paced_chunk;
    const double ns_per_round =
        bytes_per_second > 0 ? 1e9 * static_cast<double>(paced_chunk * blocks) / bytes_per_second
                             : 0;
    kernels::launch("paced_copy", paced_copy_kernel,
                    {dim3(static_cast<unsigned>(blocks)), dim3(threads)},
                    {{kernels::reads(from), kernels::writes(to)}}, stream,
                    reinterpret_cast<const uint4*>(from.data()),
                    reinterpret_cast<uint4*>(to.data()), chunks, ns_per_round);
}

} // namespace foregather::device_bench
