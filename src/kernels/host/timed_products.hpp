// SPDX-License-Identifier: Apache-2.0
// Counts the time that is spent in a library's products, so that what is not a product can be told.
#pragma once

#include <atomic>
#include <chrono>

#include "products.hpp"

namespace foregather::kernels {

class TimedProducts final : public Products {
public:
    explicit TimedProducts(std::unique_ptr<Products> products) : products_(std::move(products)) {}

    void multiply_transposed(ProductSize size, float alpha, Matrix<const float> a,
                             Matrix<const float> b, float beta, Matrix<float> c) const override {
        timed([&] { products_->multiply_transposed(size, alpha, a, b, beta, c); });
    }
    void multiply(ProductSize size, Matrix<const float> a, Matrix<const float> b, float beta,
                  Matrix<float> c) const override {
        timed([&] { products_->multiply(size, a, b, beta, c); });
    }
    void multiply_transposed(ProductSize size, float alpha, Matrix<const Bf16> a,
                             Matrix<const Bf16> b, float beta, Matrix<float> c) const override {
        timed([&] { products_->multiply_transposed(size, alpha, a, b, beta, c); });
    }
    void multiply(ProductSize size, Matrix<const Bf16> a, Matrix<const Bf16> b, float beta,
                  Matrix<float> c) const override {
        timed([&] { products_->multiply(size, a, b, beta, c); });
    }
    void multiply_outer(ProductSize size, Matrix<const float> a, Matrix<const float> b, float beta,
                        Matrix<float> c) const override {
        timed([&] { products_->multiply_outer(size, a, b, beta, c); });
    }
    void multiply_outer(ProductSize size, Matrix<const Bf16> a, Matrix<const Bf16> b, float beta,
                        Matrix<float> c) const override {
        timed([&] { products_->multiply_outer(size, a, b, beta, c); });
    }
    bool multiplies_bf16() const override { return products_->multiplies_bf16(); }
    std::string name() const override { return products_->name(); }

    double seconds() const { // of all threads together, so far
        return static_cast<double>(ns_.load(std::memory_order_relaxed)) * 1e-9;
    }

private:
    template <class Call>
    void timed(const Call& call) const {
        const auto begin = std::chrono::steady_clock::now();
        call();
        const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - begin;
        ns_.fetch_add(spent.count(), std::memory_order_relaxed);
    }

    std::unique_ptr<Products> products_;
    mutable std::atomic<std::int64_t> ns_ = 0;
};

} // namespace foregather::kernels
