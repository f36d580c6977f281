// SPDX-License-Identifier: Apache-2.0
// Gathers of one rank whose weights lie in host memory: copies to the device, in the place of what
// more ranks would do.
#pragma once

#include <memory>

#include <foregather/comm/communicator.hpp>

namespace foregather::comm {

// `shard` must be host memory for copies of `device`, which must outlive the result.
std::unique_ptr<Communicator> make_host_memory_copies(device::Device& device);

} // namespace foregather::comm
