// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels as one object: what it holds on the device, its name, and what of the
// environment changes its products.
#include "cuda.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <foregather/device/cuda_stream.hpp>
#include <foregather/kernels/cuda_kernels.hpp>

#include "products.hpp"
#include "training.hpp"

namespace foregather::kernels {

CudaKernels::CudaKernels(device::Device& device, bool tf32)
    : products_(new Products{device, LtProducts(device, tf32)}),
      logits_(device, logit_tokens * logit_columns, "logits of a block"),
      training_(std::make_unique<CudaTraining>(*this)), gpu_(device.facts().name), tf32_(tf32) {
    int ordinal = 0, limit = 0;
    device::check(cudaGetDevice(&ordinal), "ask which GPU is this thread's");
    device::check(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal),
                  "ask how much shared memory a block may have");
    shared_limit_ = static_cast<std::size_t>(limit);
}

CudaKernels::~CudaKernels() = default;

std::string CudaKernels::product_name() const {
    return "cuBLASLt " + products_->lt.version() + (tf32_ ? " with TF32" : "") + " on " + gpu_;
}

std::string CudaKernels::algorithms() const { return products_->lt.algorithms(); }

static_assert(cuda_scratch_bytes ==
              lt_workspace + base::bytes_of(logit_tokens * logit_columns, base::DType::f32));
static_assert(cuda_row_multiple == product_row_multiple);

std::unique_ptr<Kernels> make_cuda_kernels(device::Device& device, bool tf32) {
    return std::make_unique<CudaKernels>(device, tf32);
}

std::vector<std::string> cuda_product_overrides(bool tf32) {
    struct Variable {
        const char* name;
        const char* harmless; // the value that changes nothing
        const char* what;
    };
    const std::array variables = {
        Variable{"NVIDIA_TF32_OVERRIDE", tf32 ? "1" : "0",
                 tf32 ? "overrides device.tf32 = true: no product uses TF32"
                      : "overrides what precision libraries choose"},
        Variable{"CUBLAS_EMULATE_SINGLE_PRECISION", "0",
                 "lets cuBLAS make fp32 products of several products of fewer bits"},
        Variable{"CUBLAS_EMULATION_STRATEGY", "default", "changes how cuBLAS makes fp32 products"}};
    std::vector<std::string> told;
    for (const Variable& v : variables) {
        const char* value = std::getenv(v.name);
        if (value != nullptr && (v.harmless == nullptr || std::strcmp(value, v.harmless) != 0)) {
            told.push_back(std::string(v.name) + "=" + value + " " + v.what);
        }
    }
    return told;
}

std::string cublaslt_built_with() {
    return std::to_string(CUBLAS_VER_MAJOR) + "." + std::to_string(CUBLAS_VER_MINOR) + "." +
           std::to_string(CUBLAS_VER_PATCH);
}

} // namespace foregather::kernels
