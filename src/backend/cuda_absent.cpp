// SPDX-License-Identifier: Apache-2.0
// A build without CUDA: says so to whoever asks.
#include <foregather/base/error.hpp>

#include "cuda.hpp"

namespace foregather::backend {

bool cuda_built() { return false; }

Needs cuda_needs() { return {}; }

bool cuda_usable(std::string& why_not) {
    why_not = "this build has no CUDA backend";
    return false;
}

std::unique_ptr<Backend> open_cuda(const std::string& place, const mesh::Topology& /*topology*/) {
    base::refuse(place + " = cuda: this build has no CUDA backend; use device.kind = host or auto");
}

} // namespace foregather::backend
