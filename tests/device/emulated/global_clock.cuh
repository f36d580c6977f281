// SPDX-License-Identifier: Apache-2.0
// The host's clock, for kernels that run on the CPU.
#pragma once

#include <chrono>
#include <cstdint>

namespace foregather::device_bench {

inline std::uint64_t global_clock_ns() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

} // namespace foregather::device_bench
