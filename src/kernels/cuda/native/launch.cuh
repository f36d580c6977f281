// SPDX-License-Identifier: Apache-2.0
// Launches kernels on a device, and hands them their shared memory. Tests build the same kernels
// with another header of this name, which runs them on the CPU.
#pragma once

#include <string>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <foregather/device/cuda_stream.hpp>

#include "../work.hpp"

namespace foregather::kernels {

// Enqueues `kernel` and returns. Throws Error(failed) if CUDA refuses the launch.
template <class... P>
void launch(const char* name, void (*kernel)(P...), const Shape& shape, const Work& /*work*/,
            device::Stream& stream, std::type_identity_t<P>... args) {
    constexpr std::size_t always_granted = 48 << 10;
    const auto require = [name](cudaError_t rc) {
        if (rc != cudaSuccess) {
            device::check(rc, std::string("launch ") + name);
        }
    };
    if (shape.shared_bytes > always_granted) {
        require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shape.shared_bytes)));
    }
    cudaLaunchConfig_t config{};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = device::cuda_stream(stream);
    require(cudaLaunchKernelEx(&config, kernel, args...));
}

// The block's dynamic shared memory, Shape::shared_bytes of it, aligned to 16 bytes.
template <class T>
__device__ T* dynamic_shared() {
    extern __shared__ uint4 memory[];
    return reinterpret_cast<T*>(memory);
}

// The block's own T, one for each type that a kernel names; it begins undefined.
template <class T>
__device__ T& block_shared() {
    __shared__ T memory;
    return memory;
}

} // namespace foregather::kernels
