// SPDX-License-Identifier: Apache-2.0
// Runs kernels at once, on any stream. Memory that a launch does not declare is hidden while it
// runs: what a kernel reads there is NaN, and what it writes there is found.
#include "inline_runtime.hpp"

#include <algorithm>
#include <cstring>

#include <foregather/base/error.hpp>
#include <foregather/device/cuda_stream.hpp>

#include "emulation.hpp"

namespace foregather::emulation {
namespace {

constexpr std::byte hidden{0xFF}; // NaN in floats of any size

struct Region {
    std::byte* data;
    std::size_t bytes;
};

std::vector<Region>& regions() {
    static std::vector<Region> all;
    return all;
}

enum class May : char { nothing, read, write };

// One region during one launch.
class Guard {
public:
    Guard(Region region, const std::vector<Touch>& touches)
        : region_(region), before_(region.data, region.data + region.bytes),
          may_(region.bytes, May::nothing) {
        for (const Touch& touch : touches) {
            allow(touch);
        }
        for (std::size_t i = 0; i < region_.bytes; ++i) {
            if (may_[i] == May::nothing) {
                region_.data[i] = hidden;
            }
        }
    }

    // Shows again what was hidden. How many bytes changed that might not.
    std::size_t end() {
        std::size_t changed = 0;
        for (std::size_t i = 0; i < region_.bytes; ++i) {
            const std::byte expected = may_[i] == May::read ? before_[i] : hidden;
            if (may_[i] != May::write) {
                changed += region_.data[i] != expected ? 1 : 0;
                region_.data[i] = before_[i];
            }
        }
        return changed;
    }

private:
    void allow(const Touch& touch) {
        const auto* data = static_cast<const std::byte*>(touch.data);
        const std::byte* begin = std::max<const std::byte*>(data, region_.data);
        const std::byte* end =
            std::min<const std::byte*>(data + touch.bytes, region_.data + region_.bytes);
        for (const std::byte* at = begin; at < end; ++at) {
            May& may = may_[static_cast<std::size_t>(at - region_.data)];
            may = std::max(may, touch.written ? May::write : May::read);
        }
    }

    Region region_;
    std::vector<std::byte> before_;
    std::vector<May> may_;
};

} // namespace

Watched::Watched(void* data, std::size_t bytes) {
    regions().push_back({static_cast<std::byte*>(data), bytes});
}

Watched::~Watched() { regions().pop_back(); }

cudaError_t enqueue_kernel(const std::string& name, cudaStream_t, std::vector<Touch> touches,
                           std::function<void()> body) {
    std::vector<Guard> guards;
    for (const Region& region : regions()) {
        guards.emplace_back(region, touches);
    }
    body();
    std::size_t changed = 0;
    for (Guard& guard : guards) {
        changed += guard.end();
    }
    if (changed > 0) {
        base::fail("kernel " + name + " wrote " + std::to_string(changed) +
                   " bytes that its launch does not declare as written");
    }
    return cudaSuccess;
}

} // namespace foregather::emulation

namespace foregather::device {

void check(cudaError_t rc, const std::string& attempted, base::Where where) {
    if (rc != cudaSuccess) {
        base::fail("CUDA failed to " + attempted, where);
    }
}

cudaStream_t cuda_stream(Stream&) { return nullptr; }

} // namespace foregather::device
