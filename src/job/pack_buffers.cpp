// SPDX-License-Identifier: Apache-2.0
// From ordinary memory to the device, by memory that its copies may read while the host goes on.
#include "pack_buffers.hpp"

#include <algorithm>

namespace foregather::job {

kernels::Ids PackBuffers::send(const std::vector<std::int32_t>& from, const Both& to,
                               device::Stream& stream) const {
    const auto n = std::ssize(from);
    std::copy(from.begin(), from.end(), to.host.view().begin());
    device_->copy_in(base::View<const std::int32_t>(to.host.first(n)), to.device.first(n), stream);
    return to.device.first(n);
}

} // namespace foregather::job
