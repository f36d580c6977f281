// SPDX-License-Identifier: Apache-2.0
// A copy by a few blocks of threads at a given rate: what a gather by a library's kernels does to
// the GPU, without the library.
#pragma once

#include <foregather/base/view.hpp>
#include <foregather/device/stream.hpp>

namespace foregather::device_bench {

inline constexpr std::int64_t paced_chunk = 64 << 10; // bytes that a block copies between looks

// Enqueues; does not block. Both sides are device memory of the same size, a multiple of
// paced_chunk. bytes_per_second: of all blocks together; 0: as fast as they can.
void paced_copy(base::View<const std::byte> from, base::View<std::byte> to, int blocks,
                double bytes_per_second, device::Stream& stream);

} // namespace foregather::device_bench
