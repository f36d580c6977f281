// SPDX-License-Identifier: Apache-2.0
// What every kind of device shares: counting allocations and checking copies.
#include <foregather/device/device.hpp>

#include <new>

#include <foregather/base/error.hpp>

namespace foregather::device {

std::unique_ptr<Memory> Device::allocate(base::Bytes size, const std::string& purpose) {
    try {
        auto memory = do_allocate(size);
        ++allocations_;
        allocated_ += size;
        return memory;
    } catch (const std::bad_alloc&) {
        base::fail("no memory for " + purpose + ": " + std::to_string(size.count) +
                   " bytes on the " + facts().kind + " device, which already holds " +
                   std::to_string(allocated_.count) +
                   "; use more ranks, a larger mesh.shard, or smaller batch.tokens");
    }
}

void Device::copy(base::View<const std::byte> from, base::View<std::byte> to, Stream& stream) {
    if (from.size() != to.size()) {
        base::fail("a copy of " + std::to_string(from.size()) + " bytes into " +
                   std::to_string(to.size()));
    }
    if (!from.empty()) {
        do_copy(from, to, stream);
    }
}

} // namespace foregather::device
