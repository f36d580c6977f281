// SPDX-License-Identifier: Apache-2.0
// Which vector width this processor can run. The widths differ in speed alone.
#include <foregather/kernels/lanes.hpp>

#include "lane_tables.hpp"

namespace foregather::kernels {

LaneLevel best_lane_level() {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        return LaneLevel::avx512;
    }
    return __builtin_cpu_supports("avx2") ? LaneLevel::avx2 : LaneLevel::sse2;
}

const Lanes& lanes(LaneLevel level) {
    switch (level) {
    case LaneLevel::avx512:
        return lanes_avx512;
    case LaneLevel::avx2:
        return lanes_avx2;
    case LaneLevel::sse2:
        break;
    }
    return lanes_sse2;
}

} // namespace foregather::kernels
