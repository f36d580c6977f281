// SPDX-License-Identifier: Apache-2.0
// Named ranges for NVIDIA's profilers, by NVTX: headers alone, which hand every call to the library
// that a profiler names in NVTX_INJECTION64_PATH, and to nothing where there is none. What is named
// is the caller's business.
#pragma once

#include <cstdint>
#include <string>

#include <nvtx3/nvToolsExt.h>

#include <foregather/base/error.hpp>
#include <foregather/device/device.hpp>

namespace foregather::device {

struct RangeDomainCloser {
    static nvtxDomainHandle_t null() { return nullptr; }
    void operator()(nvtxDomainHandle_t domain) const noexcept { nvtxDomainDestroy(domain); }
};

// Ranges of the calling thread, in the domain "foregather".
class Ranges {
public:
    Ranges();
    // Registers a text, so that a range costs a call and no copy of its name.
    Device::RangeName name(const std::string& text);
    void begin(Device::RangeName name, std::int64_t number);
    void end();

private:
    base::Unique<nvtxDomainHandle_t, RangeDomainCloser> domain_; // null where nobody watches
};

} // namespace foregather::device
