// SPDX-License-Identifier: Apache-2.0
// The loops of every vector width: right numbers, and the same bits as each other.
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/kernels/lanes.hpp>

#include "host_set.hpp"

namespace foregather::kernels {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<const Lanes*> runnable() {
    std::vector<const Lanes*> tables;
    for (const LaneLevel level : {LaneLevel::sse2, LaneLevel::avx2, LaneLevel::avx512}) {
        if (level <= best_lane_level()) {
            tables.push_back(&lanes(level));
        }
    }
    return tables;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& x) {
    std::vector<std::uint32_t> bits;
    for (const float value : x) {
        bits.push_back(std::bit_cast<std::uint32_t>(value));
    }
    return bits;
}

float exp_at(const Lanes& table, float x) {
    table.exp_minus(&x, 1, 0.0F);
    return x;
}

// Every 9973rd float from -104 to 89, through all magnitudes.
std::vector<float> exponents() {
    std::vector<float> x;
    for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(104.0F); bits += 9973) {
        const auto value = std::bit_cast<float>(bits);
        x.push_back(-value);
        if (value < 89.0F) {
            x.push_back(value);
        }
    }
    return x;
}

TEST(Lanes, ExpIsWithinTwoUnitsInTheLastPlace) {
    std::vector<float> y = exponents();
    const std::vector<float> x = y;
    lanes(best_lane_level()).exp_minus(y.data(), static_cast<std::int64_t>(y.size()), 0.0F);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = std::exp(static_cast<double>(x[i]));
        if (exact > static_cast<double>(std::numeric_limits<float>::max())) {
            continue;
        }
        const double smallest_step = std::ldexp(1.0, -149);
        const double step = std::max(smallest_step, std::ldexp(1.0, std::ilogb(exact) - 23));
        worst = std::max(worst, std::abs(static_cast<double>(y[i]) - exact) / step);
    }
    EXPECT_LT(worst, 2.0);
    EXPECT_GT(worst, 0.0);
}

TEST(Lanes, ExpOfExtremesIsZeroInfinityOrNan) {
    for (const Lanes* table : runnable()) {
        EXPECT_EQ(exp_at(*table, 0.0F), 1.0F);
        EXPECT_EQ(exp_at(*table, -0.0F), 1.0F);
        EXPECT_EQ(exp_at(*table, -104.0F), 0.0F);
        EXPECT_EQ(exp_at(*table, -1e30F), 0.0F);
        EXPECT_EQ(exp_at(*table, -infinity), 0.0F);
        EXPECT_EQ(exp_at(*table, -103.9F), 1.4012985e-45F);
        EXPECT_EQ(exp_at(*table, 88.8F), infinity);
        EXPECT_EQ(exp_at(*table, 1e30F), infinity);
        EXPECT_EQ(exp_at(*table, infinity), infinity);
        EXPECT_TRUE(std::isnan(exp_at(*table, std::nanf(""))));
        EXPECT_TRUE(std::isnan(exp_at(*table, -std::nanf(""))));
    }
}

TEST(Lanes, ExpHasTheSameBitsAtEveryWidth) {
    const std::vector<float> x = exponents();
    const auto n = static_cast<std::int64_t>(x.size());
    std::vector<float> expected = x;
    const float sum = lanes(LaneLevel::sse2).exp_minus(expected.data(), n, 0.25F);
    for (const Lanes* table : runnable()) {
        std::vector<float> y = x;
        EXPECT_EQ(table->exp_minus(y.data(), n, 0.25F), sum);
        EXPECT_EQ(bits_of(y), bits_of(expected));
    }
}

// Sums as the header defines them, written plainly: 16 lanes, added pairwise.
template <class T>
T lane_sum(const std::vector<T>& terms) {
    T lane[16] = {};
    for (std::size_t i = 0; i < terms.size(); ++i) {
        lane[i % 16] += terms[i];
    }
    for (std::size_t step = 8; step > 0; step /= 2) {
        for (std::size_t l = 0; l < step; ++l) {
            lane[l] += lane[l + step];
        }
    }
    return lane[0];
}

TEST(Lanes, SumsRunInSixteenLanesAtEveryWidth) {
    for (const std::size_t n : {0U, 1U, 15U, 16U, 17U, 31U, 128U, 513U}) {
        const std::vector<float> x = numbers(n, 7, 5.0F);
        std::vector<float> exps;
        std::vector<double> wide_exps, squares, scaled, weighted;
        for (const float value : x) {
            exps.push_back(exp_at(lanes(LaneLevel::sse2), value - 1.5F));
            wide_exps.push_back(static_cast<double>(exps.back()));
            squares.push_back(static_cast<double>(value) * static_cast<double>(value));
            const float d = (value - 1.5F) * 0.7F;
            scaled.push_back(static_cast<double>(exp_at(lanes(LaneLevel::sse2), d)));
            weighted.push_back(static_cast<double>(d) * scaled.back());
        }
        const auto count = static_cast<std::int64_t>(n);
        for (const Lanes* table : runnable()) {
            std::vector<float> y = x;
            EXPECT_EQ(table->exp_minus(y.data(), count, 1.5F), lane_sum(exps)) << n;
            EXPECT_EQ(table->sum_exp_minus(x.data(), count, 1.5F), lane_sum(wide_exps)) << n;
            EXPECT_EQ(table->sum_of_squares(x.data(), count), lane_sum(squares)) << n;
            const Lanes::Sums sums = table->sums_exp_scaled(x.data(), count, 1.5F, 0.7F);
            EXPECT_EQ(sums.plain, lane_sum(scaled)) << n;
            EXPECT_EQ(sums.weighted, lane_sum(weighted)) << n;
            EXPECT_EQ(table->sums_exp_scaled(x.data(), count, 1.5F, 1.0F).plain,
                      lane_sum(wide_exps));
        }
    }
}

TEST(Lanes, WhatHasNoProbabilityAddsNothingToWeightedSums) {
    for (const Lanes* table : runnable()) {
        const std::vector<float> x = {1.0F, -infinity, -1e30F, 0.0F};
        const Lanes::Sums sums = table->sums_exp_scaled(x.data(), 4, 1.0F, 1.0F);
        EXPECT_DOUBLE_EQ(sums.plain, 1.0 + static_cast<double>(exp_at(*table, -1.0F)));
        EXPECT_DOUBLE_EQ(sums.weighted, -static_cast<double>(exp_at(*table, -1.0F)));
        const std::vector<float> nan = {1.0F, std::nanf("")};
        EXPECT_TRUE(std::isnan(table->sums_exp_scaled(nan.data(), 2, 1.0F, 1.0F).weighted));
    }
}

TEST(Lanes, RowLoopsHaveTheSameBitsAtEveryWidth) {
    for (const std::size_t n : {1U, 2U, 14U, 32U, 51U, 66U}) {
        const std::vector<float> x = numbers(n, 1, 20.0F), w = numbers(n, 2), c = numbers(n, 3);
        for (const Lanes* table : runnable()) {
            std::vector<float> gate = x, scaled = x, by(n), turned = x;
            const auto count = static_cast<std::int64_t>(n);
            table->silu_gate(gate.data(), w.data(), gate.data(), count);
            table->scale(scaled.data(), 0.3F, count);
            table->scale_by(x.data(), 0.7F, w.data(), by.data(), count);
            table->rotate(turned.data(), w.data(), c.data(), count / 2);
            for (std::size_t i = 0; i < n; ++i) {
                EXPECT_EQ(gate[i], x[i] / (1.0F + exp_at(*table, -x[i])) * w[i]);
                EXPECT_EQ(scaled[i], x[i] * 0.3F);
                EXPECT_EQ(by[i], (x[i] * 0.7F) * w[i]);
            }
            for (std::size_t j = 0; j < n / 2; ++j) {
                EXPECT_EQ(turned[j], x[j] * w[j] - x[n / 2 + j] * c[j]);
                EXPECT_EQ(turned[n / 2 + j], x[n / 2 + j] * w[j] + x[j] * c[j]);
            }
        }
    }
}

TEST(Lanes, LargestAndFirstPlaceAreFoundAnywhere) {
    for (const Lanes* table : runnable()) {
        EXPECT_EQ(table->largest(nullptr, 0), -infinity);
        for (std::int64_t n = 1; n < 70; ++n) {
            std::vector<float> x = numbers(static_cast<std::size_t>(n), 4, 3.0F);
            const auto place = static_cast<std::size_t>(n * 7 % n + n / 2);
            x[place] = 5.0F;
            x.back() = 5.0F; // a later equal one
            EXPECT_EQ(table->largest(x.data(), n), 5.0F);
            EXPECT_EQ(table->find(x.data(), n, 5.0F), static_cast<std::int64_t>(place));
            EXPECT_EQ(table->find(x.data(), n, 9.0F), n);
        }
    }
}

TEST(Lanes, LargestPassesOverNan) {
    for (const Lanes* table : runnable()) {
        std::vector<float> x(40, std::nanf(""));
        EXPECT_EQ(table->largest(x.data(), 40), -infinity);
        x[21] = -7.0F;
        EXPECT_EQ(table->largest(x.data(), 40), -7.0F);
    }
}

} // namespace
} // namespace foregather::kernels
