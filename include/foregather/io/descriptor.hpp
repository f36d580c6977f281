// SPDX-License-Identifier: Apache-2.0
// A descriptor of an open file, owned. What it is opened for is the caller's business.
#pragma once

#include <foregather/base/error.hpp>

namespace foregather::io {

struct DescriptorCloser {
    static int null() { return -1; }
    void operator()(int descriptor) const noexcept;
};
using Descriptor = base::Unique<int, DescriptorCloser>;

} // namespace foregather::io
