// SPDX-License-Identifier: Apache-2.0
// The loops of lane_loops.inc for 64-byte vectors (AVX-512 F, BW, DQ, VL).
// It decides nothing else: lanes.cpp says who may call them.
#include "lane_tables.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#include "lane_loops.inc"

namespace foregather::kernels {

const Lanes lanes_avx512 = table;

} // namespace foregather::kernels
