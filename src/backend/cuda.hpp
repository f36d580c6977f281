// SPDX-License-Identifier: Apache-2.0
// The seam of the CUDA backend: the build compiles either cuda.cpp or cuda_absent.cpp behind it.
#pragma once

#include <memory>
#include <string>

#include <foregather/backend/backend.hpp>

namespace foregather::backend {

// Is the backend compiled in, and if so, has this machine a GPU for it? `why_not` says what is
// missing.
bool cuda_usable(std::string& why_not);
bool cuda_built();
Needs cuda_needs();
std::unique_ptr<Backend> open_cuda(const std::string& place, const mesh::Topology& topology);

} // namespace foregather::backend
