// SPDX-License-Identifier: Apache-2.0
// The host kernels as one object, and which product library they take. What each kernel does is
// decided in the files beside this one.
#include "host.hpp"

#include "core_levels.hpp"

namespace foregather::kernels {

HostKernels::HostKernels(device::Device& device, int threads, const ProductChoice& choice)
    : HostWork(std::make_shared<const HostMeans>(device, threads, choice)), training_(means()) {}

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
