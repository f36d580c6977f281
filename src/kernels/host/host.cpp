// SPDX-License-Identifier: Apache-2.0
// The host kernels as one object: its scratch, allocated once, and what every kernel needs of it.
#include "host.hpp"

#include <cstddef>

#include <foregather/base/error.hpp>

namespace foregather::kernels {

HostKernels::HostKernels(device::Device& device, int threads, const ProductChoice& choice)
    : blas_(choice), lanes_(lanes(best_lane_level())), threads_(std::max(threads, 1)),
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

const float* weight(ConstSlab w, const char* kernel) {
    if (w.type != base::DType::f32) {
        base::fail(std::string(kernel) + ": the host computes with fp32 weights, not " +
                   base::name_of(w.type));
    }
    return reinterpret_cast<const float*>(w.data);
}

std::unique_ptr<Kernels> make_host_kernels(device::Device& device, int threads,
                                           const ProductChoice& choice) {
    return std::make_unique<HostKernels>(device, threads, choice);
}

} // namespace foregather::kernels
