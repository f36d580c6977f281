// SPDX-License-Identifier: Apache-2.0
// The kernels on a GPU: own ones, and cuBLASLt's products.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <foregather/device/device.hpp>
#include <foregather/kernels/kernels.hpp>

namespace foregather::kernels {

// Device memory of the kernels themselves, whatever the model: cuBLASLt's workspace and the logits
// of a block of tokens and vocabulary rows.
inline constexpr base::Bytes cuda_scratch_bytes{64 << 20};
inline constexpr Elements cuda_row_multiple = 256; // Kernels::row_multiple()

// `device` is a CUDA device and must outlive the result, which may be used on one stream. tf32:
// fp32 products may round their operands to TF32. Blocks; throws Error(refused) without cuBLASLt.
std::unique_ptr<Kernels> make_cuda_kernels(device::Device& device, bool tf32);

// Variables of the environment that change how products are made, each in a sentence.
std::vector<std::string> cuda_product_overrides(bool tf32);

// The cuBLASLt that the program was built with, "13.1.0".
std::string cublaslt_built_with();

} // namespace foregather::kernels
