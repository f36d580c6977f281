// SPDX-License-Identifier: Apache-2.0
// The tables that lanes.cpp chooses from. They hold nothing but function pointers.
#pragma once

#include <foregather/kernels/lanes.hpp>

namespace foregather::kernels {

extern const Lanes lanes_sse2;
extern const Lanes lanes_avx2;
extern const Lanes lanes_avx512;

} // namespace foregather::kernels
