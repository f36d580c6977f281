// SPDX-License-Identifier: Apache-2.0
// What all device kernels share: loads and stores of a few neighbours at once, rounding to bf16,
// sums over a warp. Sums run in one order, whatever the device.
#pragma once

#include <cstdint>
#include <type_traits>

#include <launch.cuh>

#include <foregather/base/types.hpp>

namespace foregather::kernels {

using base::Elements;
using Bf16 = std::uint16_t; // its bits

inline constexpr int warp_size = 32;
inline constexpr unsigned whole_warp = 0xFFFFFFFFU;

__device__ inline float not_a_number() { return nanf(""); }

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bf16 x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }

// To nearest, ties to even; NaN stays NaN.
__device__ inline Bf16 to_bf16(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

// n neighbours of an array: 1, 2 or 4.
template <int n>
struct Few {
    float v[n];
};

// The unsigned integer that holds n numbers of T, or a vector of such.
template <class T, int n>
struct Packed {
    alignas(sizeof(T) * n) T v[n];
};

// The address must be a multiple of n numbers.
template <int n, class T>
__device__ Few<n> load(const T* from) {
    const auto packed = *reinterpret_cast<const Packed<T, n>*>(from);
    Few<n> few;
    for (int i = 0; i < n; ++i) {
        few.v[i] = to_float(packed.v[i]);
    }
    return few;
}

template <int n, class T>
__device__ void store(T* to, const Few<n>& few) {
    Packed<T, n> packed;
    for (int i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<T, float>) {
            packed.v[i] = few.v[i];
        } else {
            packed.v[i] = to_bf16(few.v[i]);
        }
    }
    *reinterpret_cast<Packed<T, n>*>(to) = packed;
}

// The same in every lane.
template <class T>
__device__ T warp_sum(T x) {
    for (int step = warp_size / 2; step > 0; step /= 2) {
        x += __shfl_xor_sync(whole_warp, x, step);
    }
    return x;
}

// Can rows of so many numbers from each of these addresses on be loaded in groups of n?
template <int n, class... T>
bool cut_into(Elements width, const T*... from) {
    return width % n == 0 &&
           ((reinterpret_cast<std::uintptr_t>(from) % (sizeof(T) * n) == 0) && ...);
}

// Calls f with the first and the second type's null pointer: a type chosen at run time.
template <class F>
void with_type(base::DType type, F f) {
    if (type == base::DType::bf16) {
        f(Bf16{});
    } else {
        f(float{});
    }
}

inline unsigned blocks_of(Elements n, Elements block) {
    return static_cast<unsigned>((n + block - 1) / block);
}

} // namespace foregather::kernels
