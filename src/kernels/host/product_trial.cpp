// SPDX-License-Identifier: Apache-2.0
// A library's products are tried against plain sums before they are trusted: a kernel that is wrong
// on one kind of processor must not show as a slightly odd loss.
#include "products.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include <foregather/base/error.hpp>

namespace foregather::kernels {
namespace {

// Numbers in (-1, 1) that no power of two divides evenly, the same everywhere; cut to 8 bits of
// mantissa they are bf16.
template <class T>
std::vector<T> trial_numbers(base::Elements n, std::uint32_t seed) {
    std::vector<T> numbers(static_cast<std::size_t>(n));
    for (T& x : numbers) {
        seed = seed * 1664525U + 1013904223U;
        const float value = static_cast<float>(seed >> 8) / 8388608.0F - 1.0F;
        if constexpr (std::is_same_v<T, float>) {
            x = value;
        } else {
            x = static_cast<T>(std::bit_cast<std::uint32_t>(value) >> 16);
        }
    }
    return numbers;
}

double value_of(float x) { return static_cast<double>(x); }
double value_of(Bf16 x) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16));
}

enum class Kind { transposed, plain, outer };

struct Trial {
    ProductSize size;
    Kind kind;
    float beta;
};

// The largest error of one product, in units of what rounding alone could explain.
template <class T>
double trial_error(const Products& products, const Trial& trial) {
    const auto [m, n, k] = trial.size;
    const std::vector<T> a = trial_numbers<T>(m * k, 1), b = trial_numbers<T>(n * k, 2);
    const std::vector<float> before = trial_numbers<float>(m * n, 3);
    std::vector<float> c = before;
    const Matrix<const T> left{a.data(), trial.kind == Kind::outer ? m : k};
    const Matrix<const T> right{b.data(), trial.kind == Kind::transposed ? k : n};
    if (trial.kind == Kind::transposed) {
        products.multiply_transposed(trial.size, 1.0F, left, right, trial.beta, {c.data(), n});
    } else if (trial.kind == Kind::plain) {
        products.multiply(trial.size, left, right, trial.beta, {c.data(), n});
    } else {
        products.multiply_outer(trial.size, left, right, trial.beta, {c.data(), n});
    }
    double worst = 0;
    for (base::Elements i = 0; i < m * n; ++i) {
        const base::Elements row = i / n, column = i % n;
        double sum = trial.beta * static_cast<double>(before[static_cast<std::size_t>(i)]);
        double magnitude = std::abs(sum);
        for (base::Elements j = 0; j < k; ++j) {
            const base::Elements in_a = trial.kind == Kind::outer ? j * m + row : row * k + j;
            const base::Elements in_b =
                trial.kind == Kind::transposed ? column * k + j : j * n + column;
            const double term = value_of(a[static_cast<std::size_t>(in_a)]) *
                                value_of(b[static_cast<std::size_t>(in_b)]);
            sum += term;
            magnitude += std::abs(term);
        }
        const double unit = magnitude * static_cast<double>(k + 1) * 6e-8;
        const double error = std::abs(c[static_cast<std::size_t>(i)] - sum) / unit;
        worst = error <= worst ? worst : error; // a NaN counts as the worst
    }
    return worst;
}

template <class T>
void try_type(const Products& products, const std::string& type, const std::string& advice) {
    constexpr std::array<ProductSize, 5> sizes = {
        {{1, 1, 1}, {3, 5, 7}, {17, 33, 65}, {64, 128, 64}, {129, 51, 259}}};
    for (const ProductSize size : sizes) {
        for (const Kind kind : {Kind::transposed, Kind::plain, Kind::outer}) {
            for (const float beta : {0.0F, 1.0F}) {
                const double error = trial_error<T>(products, {size, kind, beta});
                if (!(error <= 1.0)) {
                    base::refuse("the " + type + " product kernels of " + products.name() +
                                 " are wrong on this processor: [" + std::to_string(size.m) + ", " +
                                 std::to_string(size.k) + "] x [" + std::to_string(size.k) + ", " +
                                 std::to_string(size.n) + "] is off by " + std::to_string(error) +
                                 " times the rounding error; " + advice);
                }
            }
        }
    }
}

} // namespace

void try_products(const Products& products, const std::string& advice) {
    try_type<float>(products, "fp32", advice);
    if (products.multiplies_bf16()) {
        try_type<Bf16>(products, "bf16", advice);
    }
}

void Products::multiply_transposed(ProductSize, float, Matrix<const Bf16>, Matrix<const Bf16>,
                                   float, Matrix<float>) const {
    base::fail(name() + " multiplies no bf16");
}

void Products::multiply(ProductSize, Matrix<const Bf16>, Matrix<const Bf16>, float,
                        Matrix<float>) const {
    base::fail(name() + " multiplies no bf16");
}

void Products::multiply_outer(ProductSize, Matrix<const Bf16>, Matrix<const Bf16>, float,
                              Matrix<float>) const {
    base::fail(name() + " multiplies no bf16");
}

std::unique_ptr<Products> make_products(const ProductChoice& choice) {
    if (choice.library == "onednn") {
        return make_onednn(choice.core_type);
    }
    return choice.library == "blis" ? make_blis() : make_openblas(choice.core_type);
}

} // namespace foregather::kernels
