// SPDX-License-Identifier: Apache-2.0
// What every kind of device shares: counting allocations and checking copies.
#include <foregather/device/device.hpp>

#include <new>

#include <foregather/base/error.hpp>

namespace foregather::device {

std::unique_ptr<Memory> Device::counted(const Allocator& how, base::Bytes size,
                                        const std::string& where, const std::string& purpose) {
    try {
        auto memory = how(size);
        ++allocations_;
        return memory;
    } catch (const std::bad_alloc&) {
        base::fail("no memory for " + purpose + ": " + std::to_string(size.count) + " bytes " +
                   where + ", which already holds " + std::to_string(allocated_.count) +
                   "; use more ranks, a larger mesh.shard, or smaller batch.tokens");
    }
}

std::unique_ptr<Memory> Device::allocate_by(const Allocator& how, base::Bytes size,
                                            const std::string& purpose) {
    auto memory = counted(how, size, "on the " + facts().kind + " device", purpose);
    allocated_ += size;
    return memory;
}

std::unique_ptr<Memory> Device::allocate(base::Bytes size, const std::string& purpose) {
    return allocate_by([this](base::Bytes n) { return do_allocate(n); }, size, purpose);
}

std::unique_ptr<Memory> Device::allocate_host(base::Bytes size, const std::string& purpose) {
    return counted([this](base::Bytes n) { return do_allocate_host(n); }, size,
                   "of host memory for the " + facts().kind + " device", purpose);
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
