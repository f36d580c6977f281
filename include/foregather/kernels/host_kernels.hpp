// SPDX-License-Identifier: Apache-2.0
// The kernels on the host: own loops and a library's products, on the threads of a host stream.
// Which product kernels run is decided here, by the caller's choice or the library's own variables.
#pragma once

#include <array>
#include <memory>
#include <string>

#include <foregather/device/device.hpp>
#include <foregather/kernels/kernels.hpp>

namespace foregather::kernels {

// Levels of product kernels under OpenBLAS's names, each running on every processor that runs a
// later one: SSE3, SSE4.2, AVX2, AVX-512, AVX-512 with bf16. Ranks on different processors multiply
// alike if all take the lowest of their levels.
inline constexpr std::array core_levels = {"Prescott", "Nehalem", "Haswell", "SkylakeX",
                                           "Cooperlake"};

// The last of core_levels that this processor and its operating system can run.
std::string supported_core_level();

// Scratch of one thread, whatever the model: the logits of a block of tokens and vocabulary rows,
// and operands widened for a library that multiplies fp32 alone.
inline constexpr base::Bytes host_scratch_bytes{1280 << 10};

// The product library that was measured to be the fastest with the kernels of a level: oneDNN from
// AVX2 on (figures: README.md), else OpenBLAS; and whether this process can load it.
struct FastestProducts {
    std::string library;
    bool can_be_loaded = false;
};
FastestProducts fastest_products(const std::string& core_level);

struct ProductChoice {
    std::string library = "openblas"; // openblas, onednn or blis
    std::string core_type;            // one of core_levels; "" is the library's own choice
};

// Loads the library, on the process's first call for good, and tries its products against plain
// sums in double. OPENBLAS_CORETYPE or ONEDNN_MAX_CPU_ISA of the environment win over `choice`, and
// product_name() says so; OpenBLAS is loaded with OPENBLAS_NUM_THREADS=1. Allocates
// host_scratch_bytes a thread on `device`, which must outlive the result. The kernels may be used
// on one stream at a time, of at most `threads` threads. Throws Error(refused): no library, a core
// type that it or this processor lacks, wrong products.
std::unique_ptr<Kernels> make_host_kernels(device::Device& device, int threads,
                                           const ProductChoice& choice);

} // namespace foregather::kernels
