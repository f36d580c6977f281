// SPDX-License-Identifier: Apache-2.0
// The runtime of tests that look at kernels alone: a kernel runs at once, and is caught touching
// watched memory that its launch did not declare.
#pragma once

#include <cstddef>
#include <vector>

namespace foregather::emulation {

// While it lives, kernels may read of this memory only what their launch declares (they find NaN
// elsewhere) and write only what it declares as written (else the launch throws).
class Watched {
public:
    Watched(void* data, std::size_t bytes);
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
};

// A vector whose memory is watched as long as it lives.
template <class T>
class DeviceVector {
public:
    explicit DeviceVector(std::vector<T> values)
        : values_(std::move(values)), watched_(values_.data(), values_.size() * sizeof(T)) {}

    std::vector<T>& operator*() { return values_; }
    std::vector<T>* operator->() { return &values_; }

private:
    std::vector<T> values_;
    Watched watched_;
};

} // namespace foregather::emulation
