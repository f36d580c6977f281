// SPDX-License-Identifier: Apache-2.0
// The host kernels as one object: its scratch, allocated once, and what every kernel needs of it.
#include "host.hpp"

#include <cstddef>

#include <foregather/base/error.hpp>

#include "core_levels.hpp"

namespace foregather::kernels {

HostKernels::HostKernels(device::Device& device, int threads, const ProductChoice& choice)
    : products_(make_products(choice)), lanes_(lanes(best_lane_level())),
      threads_(std::max(threads, 1)),
      scratch_(device, threads_ * scratch_floats, "scratch of the kernels") {}

device::HostStream& HostKernels::checked(Stream& stream) const {
    device::HostStream& host = device::host_stream(stream);
    if (host.threads() > threads_) {
        base::fail("stream " + stream.name() + " has " + std::to_string(host.threads()) +
                   " threads, the kernels have scratch for " + std::to_string(threads_));
    }
    return host;
}

float* HostKernels::scratch_of(int thread) const {
    return scratch_.view().data() + thread * scratch_floats;
}

void require_computable(ConstSlab w, const char* kernel) {
    if (w.type != base::DType::f32 && w.type != base::DType::bf16) {
        base::fail(std::string(kernel) + ": the host computes with weights of fp32 or bf16, not " +
                   base::name_of(w.type));
    }
}

FastestProducts fastest_products(const std::string& core_level) {
    if (level_of(core_level) >= level_of("Haswell")) {
        return {"onednn", onednn_can_be_loaded()};
    }
    return {"openblas", true}; // or make_host_kernels() says why not
}

std::unique_ptr<Kernels> make_host_kernels(device::Device& device, int threads,
                                           const ProductChoice& choice) {
    return std::make_unique<HostKernels>(device, threads, choice);
}

} // namespace foregather::kernels
