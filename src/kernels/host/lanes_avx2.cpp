// SPDX-License-Identifier: Apache-2.0
// The loops of lane_loops.inc for 32-byte vectors (AVX2).
// It decides nothing else: lanes.cpp says who may call them.
#include "lane_tables.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#pragma GCC target("avx2")
#include "lane_loops.inc"

namespace foregather::kernels {

const Lanes lanes_avx2 = table;

} // namespace foregather::kernels
