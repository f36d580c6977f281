// SPDX-License-Identifier: Apache-2.0
// What the CUDA kernels keep for their products.
#pragma once

#include "cuda.hpp"
#include "lt_products.hpp"

namespace foregather::kernels {

struct CudaKernels::Products {
    device::Device& device;
    LtProducts lt;
    device::Buffer<float> bias{}; // [widest], of a product whose weights are bf16
};

} // namespace foregather::kernels
