// SPDX-License-Identifier: Apache-2.0
// Runs kernels on the CPU: the words of CUDA C++ that the project's kernels use, said with fibers.
// Stands in for the device's header of the same name. Tests only.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <foregather/device/cuda_stream.hpp>

#include "../../../src/kernels/cuda/work.hpp"
#include "../emulation.hpp"
#include "../fibers.hpp"

// ---- CUDA's own functions -----------------------------------------------------------------------

// CUDA's headers leave this one name to device compilers, and it stands where only a macro can.
#define __launch_bounds__(...)

using std::isfinite;
using std::isnan;
using std::max;
using std::min;

inline void __syncthreads(std::source_location where = std::source_location::current()) {
    foregather::emulation::sync_block(where);
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFU,
                       std::source_location where = std::source_location::current()) {
    foregather::emulation::exchange("__syncwarp", mask, 0, where);
}

inline unsigned __ballot_sync(unsigned mask, bool predicate,
                              std::source_location where = std::source_location::current()) {
    const std::uint64_t* all =
        foregather::emulation::exchange("__ballot_sync", mask, predicate ? 1 : 0, where);
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        bits |= static_cast<unsigned>(all[lane]) << lane;
    }
    return bits;
}

inline int __any_sync(unsigned mask, bool predicate,
                      std::source_location where = std::source_location::current()) {
    return __ballot_sync(mask, predicate, where) != 0 ? 1 : 0;
}

inline int __all_sync(unsigned mask, bool predicate,
                      std::source_location where = std::source_location::current()) {
    return __ballot_sync(mask, !predicate, where) == 0 ? 1 : 0;
}

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(int bits) {
    return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1;
}

// A lane number outside the warp wraps, as CUDA has it.
template <class T>
T __shfl_sync(unsigned mask, T value, int lane,
              std::source_location where = std::source_location::current()) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    const std::uint64_t* all = foregather::emulation::exchange("__shfl_sync", mask, bits, where);
    std::memcpy(&value, &all[static_cast<unsigned>(lane) % 32], sizeof(T));
    return value;
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with,
                  std::source_location where = std::source_location::current()) {
    return __shfl_sync(mask, value, static_cast<int>(threadIdx.x % 32) ^ with, where);
}

namespace foregather::kernels {

// Enqueues the kernel on the runtime's double, which checks the touches against other work.
template <class... P>
void launch(const char* name, void (*kernel)(P...), const Shape& shape, const Work& work,
            device::Stream& stream, std::type_identity_t<P>... args) {
    std::vector<emulation::Touch> touches;
    for (const Touch& touch : work.touches) {
        if (touch.bytes > 0) {
            touches.push_back({touch.data, touch.bytes, touch.written});
        }
    }
    const emulation::Grid grid{name, shape.grid, shape.block, shape.shared_bytes};
    const emulation::Order order = emulation::order_of_environment();
    const cudaError_t rc =
        emulation::enqueue_kernel(name, device::cuda_stream(stream), std::move(touches), [=] {
            emulation::run_grid(grid, order, [&] { kernel(args...); });
        });
    device::check(rc, std::string("launch ") + name);
}

template <class T>
T* dynamic_shared() {
    return reinterpret_cast<T*>(emulation::dynamic_memory());
}

// The address of `key<T>` names the type.
template <class T>
T& block_shared() {
    static const char key = 0;
    return *reinterpret_cast<T*>(emulation::block_memory(&key, sizeof(T)));
}

} // namespace foregather::kernels
