// SPDX-License-Identifier: Apache-2.0
// Element types of weights converted in memory: HDF5's own conversion is hundreds of times slower
// and rounds ties up. It decides no type: its callers do.
#pragma once

#include <cstddef>
#include <cstdint>

#include <foregather/base/types.hpp>

namespace foregather::io {

// out[i] = value of raw element i, exactly, for n elements stored little-endian as `type`; NaNs
// keep sign and payload. raw [n * size_of(type)], of any alignment, and out [n] do not overlap.
void to_f32(base::DType type, const std::byte* raw, base::Elements n, float* out);

// out[i] = values[i] rounded to bfloat16, to nearest, ties to even; overflow gives infinity, NaN
// stays NaN (made quiet). values [n] and out [n] do not overlap.
void f32_to_bf16(const float* values, base::Elements n, std::uint16_t* out);

// How many of n elements stored as `type` are not finite, and which is the first (n: none).
struct NotFinite {
    base::Elements count, first;
};
NotFinite find_not_finite(base::DType type, const std::byte* raw, base::Elements n);

} // namespace foregather::io
