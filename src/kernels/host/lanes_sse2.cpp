// SPDX-License-Identifier: Apache-2.0
// The loops of lane_loops.inc for 16-byte vectors, which every x86-64 processor has.
// It decides nothing else: lanes.cpp says who may call them.
#include "lane_tables.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "lane_loops.inc"

namespace foregather::kernels {

const Lanes lanes_sse2 = table;

} // namespace foregather::kernels
