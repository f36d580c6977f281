// SPDX-License-Identifier: Apache-2.0
// Which product kernels this processor and its operating system can run.
#include "core_levels.hpp"

namespace foregather::kernels {

std::string supported_core_level() {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512cd")) {
        const bool bf16 =
            __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
        return bf16 ? "Cooperlake" : "SkylakeX";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return "Haswell";
    }
    return __builtin_cpu_supports("sse4.2") ? "Nehalem" : "Prescott";
}

} // namespace foregather::kernels
