// SPDX-License-Identifier: Apache-2.0
// The seam between the two halves of the emulation: kernels that run on the CPU (fibers) hand
// themselves to the test double of the CUDA runtime, which runs them in stream order and checks
// what they touch. Tests only.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

namespace foregather::emulation {

// Device memory that an operation reads, or reads and writes.
struct Touch {
    const void* data = nullptr;
    std::size_t bytes = 0;
    bool written = false;
};

// Enqueues a kernel on the stream and returns. `body` runs all its blocks on the calling worker;
// what it throws is the kernel's failure: the double tells it and fails the device, as a fault on
// the device would. Defined by the double of the runtime.
cudaError_t enqueue_kernel(const std::string& name, cudaStream_t stream, std::vector<Touch> touches,
                           std::function<void()> body);

} // namespace foregather::emulation
