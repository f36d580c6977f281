// SPDX-License-Identifier: Apache-2.0
// What CUDA kernels and NCCL need beyond Stream: the handle to enqueue on. Code for other devices
// never sees this header.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include <foregather/base/error.hpp>
#include <foregather/device/stream.hpp>

namespace foregather::device {

// Throws Error(failed) with CUDA's own name and text unless rc is cudaSuccess. `attempted`
// completes the sentence "CUDA failed to ...": e.g. "record the event gathered".
void check(cudaError_t rc, const std::string& attempted, base::Where where = base::Where::here());

// The stream's handle; a stream of another kind is a programming error and throws.
cudaStream_t cuda_stream(Stream& stream);

} // namespace foregather::device
