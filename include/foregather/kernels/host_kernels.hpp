// SPDX-License-Identifier: Apache-2.0
// The kernels on the host: own loops and OpenBLAS products, on the threads of a host stream. Which
// product kernels run is decided here, by the caller's choice or OPENBLAS_CORETYPE.
#pragma once

#include <array>
#include <memory>
#include <string>

#include <foregather/device/device.hpp>
#include <foregather/kernels/kernels.hpp>

namespace foregather::kernels {

// OpenBLAS core types, each running on every processor that runs a later one. Ranks on different
// processors multiply alike if all take the lowest of their levels.
inline constexpr std::array core_levels = {"Prescott", "Nehalem", "Haswell", "SkylakeX"};

// The last of core_levels that this processor and its operating system can run.
std::string supported_core_level();

// Scratch of one thread: the logits of 256 tokens and 512 vocabulary rows, whatever the model.
inline constexpr base::Bytes host_scratch_bytes{512 << 10};

struct ProductChoice {
    std::string core_type; // an OpenBLAS core type; "" is the library's own choice
};

// Loads OpenBLAS, on the process's first call for good, and tries its products against plain sums
// in double. OPENBLAS_CORETYPE of the environment wins over `choice`, and product_name() says so;
// sets OPENBLAS_NUM_THREADS=1. Allocates host_scratch_bytes a thread on `device`, which must
// outlive the result. The kernels may be used on one stream at a time, of at most `threads`
// threads. Throws Error(refused): no library, a core type that it or this processor lacks, wrong
// products.
std::unique_ptr<Kernels> make_host_kernels(device::Device& device, int threads,
                                           const ProductChoice& choice);

} // namespace foregather::kernels
