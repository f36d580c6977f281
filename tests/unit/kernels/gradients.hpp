// SPDX-License-Identifier: Apache-2.0
// Numerical derivatives in double for the tests of backward kernels, and how far gradients are from
// them. Each test brings its own forward pass in double and its own tolerance.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <foregather/kernels/training.hpp>

#include "host_set.hpp"

namespace foregather::kernels {

using Doubles = std::vector<double>;

inline Doubles wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

// Sum of weights[i] * x[i]: what is derived, so that every entry of an output counts.
inline double functional(const std::vector<float>& weights, const Doubles& x) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        sum += static_cast<double>(weights[i]) * x[i];
    }
    return sum;
}

// Central differences of f at x.
template <class F>
Doubles derivative(const F& f, Doubles x) {
    constexpr double step = 1e-4;
    Doubles slopes;
    for (double& entry : x) {
        const double here = entry;
        entry = here + step;
        const double above = f(x);
        entry = here - step;
        const double below = f(x);
        entry = here;
        slopes.push_back((above - below) / (2 * step));
    }
    return slopes;
}

// The largest error over the largest entry; a NaN or a wrong number of entries is infinitely off.
inline double error_of(const std::vector<float>& got, const Doubles& expected) {
    double worst = got.size() == expected.size() ? 0 : HUGE_VAL, largest = 1e-30;
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
        const double error = std::abs(static_cast<double>(got[i]) - expected[i]);
        worst = error <= worst ? worst : (std::isnan(error) ? HUGE_VAL : error);
        largest = std::max(largest, std::abs(expected[i]));
    }
    return worst / largest;
}

inline std::vector<float> nans(std::size_t n) { return std::vector<float>(n, std::nanf("")); }

// A host set with its training kernels.
struct TrainingSet : HostSet {
    using HostSet::HostSet;
    TrainingKernels& training = kernels->training();
};

inline Slab slab_of_bits(std::vector<std::uint16_t>& bits) {
    return {reinterpret_cast<std::byte*>(bits.data()), std::ssize(bits), base::DType::bf16};
}

} // namespace foregather::kernels
