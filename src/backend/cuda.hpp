// SPDX-License-Identifier: Apache-2.0
// The seam of the CUDA backend: the build compiles either cuda.cpp or cuda_absent.cpp behind it.
#pragma once

#include <memory>
#include <string>

#include <foregather/backend/backend.hpp>

namespace foregather::backend {

bool cuda_built();

// Of a rank's GPU; 0: unknown.
base::Bytes cuda_memory();

// Has this process a GPU to compute on, if it is the local_rank-th of its node? If not, why_not.
struct FoundGpu {
    int ordinal = -1;
    std::string address; // of it alone
    std::string why_not;
    bool seen = false; // is there any GPU at all?
};
FoundGpu find_gpu(int local_rank);

// Collective; blocks. `gpu` is this rank's; no two ranks have the same.
std::unique_ptr<Backend> open_cuda(const deck::DeviceSection& section, const FoundGpu& gpu,
                                   const mesh::Topology& topology, const mesh::Control& control);

} // namespace foregather::backend
