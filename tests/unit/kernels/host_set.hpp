// SPDX-License-Identifier: Apache-2.0
// A host device with a stream and kernels for tests, and numbers to feed them.
// It decides no tolerance: each test does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/device/device.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/device/host_stream.hpp>
#include <foregather/kernels/host_kernels.hpp>
#include <foregather/kernels/lanes.hpp>

namespace foregather::kernels {

struct HostSet {
    explicit HostSet(int threads = 1, const ProductChoice& products = {})
        : device(device::make_host_device(threads)),
          stream(device->stream("compute", device::Priority::normal)),
          kernels(make_host_kernels(*device, threads, products)) {}

    std::unique_ptr<device::Device> device;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Kernels> kernels;
};

// Both libraries: each multiplies fp32, and bf16 natively or widened.
inline const std::vector<std::string>& libraries() {
    static const std::vector<std::string> both = {"openblas", "onednn"};
    return both;
}

inline std::string name_of_library(const testing::TestParamInfo<std::string>& test) {
    return test.param;
}

// x rounded to bf16, as bits and as the numbers that they are.
struct Rounded {
    std::vector<std::uint16_t> bits;
    std::vector<float> values;

    explicit Rounded(const std::vector<float>& x) : bits(x.size()), values(x.size()) {
        const Lanes& plain = lanes(LaneLevel::sse2);
        plain.to_bf16(x.data(), bits.data(), static_cast<std::int64_t>(x.size()));
        plain.from_bf16(bits.data(), values.data(), static_cast<std::int64_t>(x.size()));
    }
    ConstSlab slab() const {
        return {reinterpret_cast<const std::byte*>(bits.data()), std::ssize(bits),
                base::DType::bf16};
    }
};

// Numbers in [-scale, scale), the same for the same seed.
inline std::vector<float> numbers(std::size_t n, std::uint32_t seed, float scale = 1.0F) {
    std::vector<float> x(n);
    for (float& value : x) {
        seed = seed * 1664525U + 1013904223U;
        value = scale * (static_cast<float>(seed >> 8) / 8388608.0F - 1.0F);
    }
    return x;
}

inline ConstSlab slab_of(const std::vector<float>& x) { return ConstFloats(x); }
inline Slab slab_of(std::vector<float>& x) { return Floats(x); }

// The message and status of the Error that `call` throws; "" if it throws none.
template <class Call>
std::string refusal_of(Call call, base::Status status = base::Status::failed) {
    try {
        call();
    } catch (const base::Error& error) {
        return error.status() == status ? error.what()
                                        : "another status: " + std::string(error.what());
    }
    return "";
}

} // namespace foregather::kernels
