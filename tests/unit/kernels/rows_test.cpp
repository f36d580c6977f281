// SPDX-License-Identifier: Apache-2.0
// Kernels that work row by row: norm, RoPE, gate, embedding, taking rows.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "host_set.hpp"

namespace foregather::kernels {
namespace {

TEST(RmsNorm, IsExactInALiteralCase) {
    HostSet host;
    const std::vector<float> x = {3, 4, 0, 0, -6, 8, 0, 0}, w = {1, 2, 3, -1};
    std::vector<float> y(8);
    // Mean squares 6.25 and 25: with epsilon 0 the factors are 0.4 and 0.2.
    host.kernels->rms_norm(x, slab_of(w), 0.0F, slab_of(y), *host.stream);
    host.stream->sync();
    const std::vector<float> expected = {1.2F, 3.2F, 0, 0, -1.2F, 3.2F, 0, 0};
    for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_FLOAT_EQ(y[i], expected[i]) << i;
    }
}

TEST(RmsNorm, FollowsItsDefinitionAtAnyWidthAlsoInPlace) {
    HostSet host(3);
    for (const std::size_t width : {1U, 5U, 40U, 576U}) {
        const std::size_t rows = 70;
        const std::vector<float> x = numbers(rows * width, 1, 3.0F), w = numbers(width, 2);
        std::vector<float> y(x.size()), in_place = x;
        host.kernels->rms_norm(x, slab_of(w), 1e-5F, slab_of(y), *host.stream);
        host.kernels->rms_norm(in_place, slab_of(w), 1e-5F, slab_of(in_place), *host.stream);
        host.stream->sync();
        EXPECT_EQ(in_place, y);
        for (std::size_t r = 0; r < rows; ++r) {
            double squares = 0;
            for (std::size_t i = 0; i < width; ++i) {
                squares += std::pow(static_cast<double>(x[r * width + i]), 2);
            }
            const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
            for (std::size_t i = 0; i < width; ++i) {
                const double exact =
                    static_cast<double>(x[r * width + i]) * factor * static_cast<double>(w[i]);
                ASSERT_NEAR(y[r * width + i], exact, 3e-7 * std::abs(exact) + 1e-30);
            }
        }
    }
}

// F-BG's last norm: 1000 times a unit vector becomes exactly 2 times it.
TEST(RmsNorm, GivesExactlyTwoForALoneLargeEntryOfFour) {
    HostSet host;
    const std::vector<float> x = {0, 1000, 0, 0}, w = {1, 1, 1, 1};
    std::vector<float> y(4);
    host.kernels->rms_norm(x, slab_of(w), 1e-5F, slab_of(y), *host.stream);
    host.stream->sync();
    EXPECT_EQ(y, (std::vector<float>{0, 2, 0, 0}));
}

TEST(RopeKernel, TurnsPairsHalfAHeadApartByTheAngleOfThePosition) {
    HostSet host;
    // Position 0: no turn; 1: a quarter turn of the first pair; 2: a half turn of the second.
    const std::vector<float> cosines = {1, 1, 0, 1, 1, -1}, sines = {0, 0, 1, 0, 0, 0};
    const std::vector<std::int32_t> positions = {2, 0, 1};
    std::vector<float> x; // 3 tokens, 2 heads, head dim 4
    for (int i = 1; i <= 24; ++i) {
        x.push_back(static_cast<float>(i));
    }
    host.kernels->rope(x, positions, cosines, sines, 2, 4, *host.stream);
    host.stream->sync();
    EXPECT_EQ(x, (std::vector<float>{1,  -2, 3,  -4, 5,   -6, 7,  -8, 9,   10, 11, 12,
                                     13, 14, 15, 16, -19, 18, 17, 20, -23, 22, 21, 24}));
}

TEST(RopeKernel, NeverReadsPastItsTables) {
    for (const std::int32_t position : {2, -1}) {
        HostSet host;
        const std::vector<float> cosines = {1, 1}, sines = {0, 0}; // 2 positions of head dim 2
        const std::vector<std::int32_t> positions = {1, position};
        std::vector<float> x(4);
        host.kernels->rope(x, positions, cosines, sines, 1, 2, *host.stream);
        const std::string text = refusal_of([&] { host.stream->sync(); });
        EXPECT_NE(text.find("position " + std::to_string(position)), std::string::npos) << text;
    }
}

TEST(SiluGate, FollowsItsDefinition) {
    HostSet host(2);
    std::vector<float> gate = numbers(40001, 1, 30.0F);
    const std::vector<float> before = gate, up = numbers(40001, 2);
    host.kernels->silu_gate(gate, up, slab_of(gate), *host.stream);
    host.stream->sync();
    for (std::size_t i = 0; i < gate.size(); ++i) {
        const auto g = static_cast<double>(before[i]);
        const double exact = g / (1.0 + std::exp(-g)) * static_cast<double>(up[i]);
        ASSERT_NEAR(gate[i], exact, 4e-7 * std::abs(exact) + 1e-37) << before[i];
    }
}

TEST(SiluGate, OfExtremesIsZeroTheInputOrNan) {
    HostSet host;
    std::vector<float> gate = {0, -200, 200, std::nanf("")};
    const std::vector<float> up = {3, 1, 2, 1};
    host.kernels->silu_gate(gate, up, slab_of(gate), *host.stream);
    host.stream->sync();
    EXPECT_EQ(gate[0], 0.0F);
    EXPECT_EQ(gate[1], 0.0F);
    EXPECT_EQ(gate[2], 400.0F);
    EXPECT_TRUE(std::isnan(gate[3]));
}

TEST(Embed, FillsTheTokensOfItsPieceAndNoOther) {
    HostSet host;
    const std::vector<std::int32_t> ids = {4, 2, 5, 3, 2};
    const std::vector<float> piece = {20, 21, 30, 31, 40, 41}; // rows 2, 3, 4
    std::vector<float> x(10, -1.0F);
    host.kernels->embed(ids, 2, slab_of(piece), x, 2, *host.stream);
    host.stream->sync();
    EXPECT_EQ(x, (std::vector<float>{40, 41, 20, 21, -1, -1, 30, 31, 20, 21}));
}

TEST(TakeRows, CopiesTheRowsNamed) {
    HostSet host;
    const std::vector<float> x = {0, 1, 10, 11, 20, 21};
    const std::vector<std::int32_t> rows = {2, 0, 2, 1};
    std::vector<float> y(8);
    host.kernels->take_rows(x, rows, y, 2, *host.stream);
    host.stream->sync();
    EXPECT_EQ(y, (std::vector<float>{20, 21, 0, 1, 20, 21, 10, 11}));
}

TEST(TakeRows, NeverReadsPastItsInput) {
    HostSet host;
    const std::vector<float> x(6);
    const std::vector<std::int32_t> rows = {0, 3};
    std::vector<float> y(4);
    host.kernels->take_rows(x, rows, y, 2, *host.stream);
    const std::string text = refusal_of([&] { host.stream->sync(); });
    EXPECT_NE(text.find("row 3 of 3"), std::string::npos) << text;
}

TEST(RowKernels, HaveTheSameBitsOnAnyNumberOfThreads) {
    const std::vector<float> x = numbers(150 * 12, 1, 4.0F), w = numbers(12, 2);
    const std::vector<float> cosines = numbers(150 * 2, 3), sines = numbers(150 * 2, 4);
    std::vector<std::int32_t> positions;
    for (std::int32_t t = 0; t < 150; ++t) {
        positions.push_back(t);
    }
    std::vector<float> expected_norm, expected_rope, expected_gate;
    for (const int threads : {1, 2, 3}) {
        HostSet host(threads);
        std::vector<float> normed(x.size()), turned = x, gate = x;
        host.kernels->rms_norm(x, slab_of(w), 1e-6F, slab_of(normed), *host.stream);
        host.kernels->rope(turned, positions, cosines, sines, 3, 4, *host.stream);
        host.kernels->silu_gate(gate, x, slab_of(gate), *host.stream);
        host.stream->sync();
        if (threads == 1) {
            expected_norm = normed;
            expected_rope = turned;
            expected_gate = gate;
        }
        EXPECT_EQ(normed, expected_norm);
        EXPECT_EQ(turned, expected_rope);
        EXPECT_EQ(gate, expected_gate);
    }
}

} // namespace
} // namespace foregather::kernels
