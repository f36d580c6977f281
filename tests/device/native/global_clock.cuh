// SPDX-License-Identifier: Apache-2.0
// The GPU's clock that all its processors share (PTX ISA, "globaltimer"). Tests build with another
// header of this name.
#pragma once

#include <cstdint>

namespace foregather::device_bench {

__device__ inline std::uint64_t global_clock_ns() {
    std::uint64_t ns = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

} // namespace foregather::device_bench
