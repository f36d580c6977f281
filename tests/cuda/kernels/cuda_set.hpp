// SPDX-License-Identifier: Apache-2.0
// The device's kernels, emulated, beside the host's, and what their tests compare results with.
// It decides no tolerance: each test does.
#pragma once

#include <bit>
#include <cstdlib>
#include <cstring>

#include "../../../src/kernels/cuda/cuda.hpp"
#include "../../cuda_emulation/inline_runtime.hpp"
#include "../../unit/kernels/host_set.hpp"

namespace foregather::kernels {

using emulation::DeviceVector;

inline const float nan = std::nanf("");

// Emulated kernels on the memory of a host device.
inline HostSet cuda_set() {
    HostSet set;
    set.kernels = std::make_unique<CudaKernels>(*set.device, false);
    return set;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// What run(set) returns (something with same_bits()) from emulated kernels, in every order of
// threads the same.
template <class Run>
auto emulated(Run run) {
    HostSet set = cuda_set();
    setenv("FOREGATHER_EMULATION_ORDER", "0", 1);
    auto result = run(set);
    for (const char* order : {"1", "2"}) {
        setenv("FOREGATHER_EMULATION_ORDER", order, 1);
        EXPECT_TRUE(same_bits(result, run(set))) << "threads in order " << order;
    }
    unsetenv("FOREGATHER_EMULATION_ORDER");
    return result;
}

template <class Run>
auto on_host(Run run) {
    HostSet set;
    return run(set);
}

// Numbers of a slab of either type, with memory behind it that no kernel may touch.
class Numbers {
public:
    Numbers(std::vector<float> values, base::DType type)
        : type_(type), n_(values.size()), floats_(type == base::DType::f32 ? values : nothing()),
          halves_(type == base::DType::bf16 ? Rounded(values).bits : std::vector<std::uint16_t>()) {
    }

    Slab slab() {
        auto* data = type_ == base::DType::f32 ? reinterpret_cast<std::byte*>(floats_->data())
                                               : reinterpret_cast<std::byte*>(halves_->data());
        return {data, static_cast<Elements>(n_), type_};
    }
    std::vector<float> values() {
        if (type_ == base::DType::f32) {
            return *floats_;
        }
        std::vector<float> wide(n_);
        lanes(LaneLevel::sse2).from_bf16(halves_->data(), wide.data(), std::ssize(wide));
        return wide;
    }

private:
    static std::vector<float> nothing() { return {}; }

    base::DType type_;
    std::size_t n_;
    DeviceVector<float> floats_;
    DeviceVector<std::uint16_t> halves_;
};

// |a - b| / (1 + |b|) at its worst; infinite where only one is NaN.
inline double worst_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double worst = a.size() == b.size() ? 0 : HUGE_VAL;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
        if (std::isnan(a[i]) != std::isnan(b[i])) {
            return HUGE_VAL;
        }
        if (!std::isnan(a[i]) && a[i] != b[i]) {
            const double difference =
                std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
            worst = std::max(worst, difference / (1.0 + std::abs(static_cast<double>(b[i]))));
        }
    }
    return worst;
}

// One unit in the last place of bf16, relative.
inline constexpr double bf16_step = 1.0 / 128;

} // namespace foregather::kernels
