// SPDX-License-Identifier: Apache-2.0
// A build without CUDA: says so to whoever asks.
#include <foregather/base/error.hpp>

#include "cuda.hpp"

namespace foregather::backend {

bool cuda_built() { return false; }

CudaVersions cuda_built_with() { return {"not built in", "not built in"}; }

base::Bytes cuda_memory() { return {}; }

FoundGpu find_gpu(int /*local_rank*/) { return {-1, "", "this build has no CUDA backend"}; }

std::unique_ptr<Backend> open_cuda(const deck::DeviceSection& /*section*/, const FoundGpu& gpu,
                                   const mesh::Topology& /*topology*/,
                                   const mesh::Control& /*control*/) {
    base::fail(gpu.why_not);
}

} // namespace foregather::backend
