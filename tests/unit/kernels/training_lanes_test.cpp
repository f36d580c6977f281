// SPDX-License-Identifier: Apache-2.0
// The loops that training adds have the same bits at every vector width. What they compute is
// judged by the tests of the kernels that call them.
#include <bit>

#include "gradients.hpp"

namespace foregather::kernels {
namespace {

// What a table makes of the same numbers, one loop after the other, as bits.
std::vector<std::uint32_t> all_loops(const Lanes& table, std::size_t n) {
    const auto count = static_cast<std::int64_t>(n);
    const std::vector<float> x = numbers(n, 1, 20.0F), y = numbers(n, 2), z = numbers(n, 3);
    std::vector<float> turned = x, added = y, gate(n), up(n), scores = x, w = x, m = y, v = y;
    Doubles sums = wide(z);
    table.rotate_back(turned.data(), y.data(), z.data(), count / 2);
    table.add_scaled(x.data(), 0.3F, added.data(), count);
    table.add_products(x.data(), 0.7F, y.data(), sums.data(), count);
    table.silu_gate_backward(x.data(), y.data(), z.data(), gate.data(), up.data(), count);
    table.softmax_backward(y.data(), 0.1F, 0.4F, scores.data(), count);
    table.scale_by(y.data(), 1.0F, y.data(), v.data(), count);
    table.adamw({0.5F, 0.99F, 0.1F, 0.95F, 0.05F, 0.7F, 1e-8F, 0.01F}, z.data(), w.data(), m.data(),
                v.data(), count);
    std::vector<std::uint32_t> bits;
    for (const std::vector<float>* part : {&turned, &added, &gate, &up, &scores, &w, &m, &v}) {
        for (const float value : *part) {
            bits.push_back(std::bit_cast<std::uint32_t>(value));
        }
    }
    sums.push_back(table.dot(x.data(), y.data(), count));
    for (const double value : sums) {
        const auto both = std::bit_cast<std::uint64_t>(value);
        bits.push_back(static_cast<std::uint32_t>(both >> 32));
        bits.push_back(static_cast<std::uint32_t>(both));
    }
    return bits;
}

TEST(TrainingLanes, HaveTheSameBitsAtEveryWidth) {
    for (const std::size_t n : {1U, 2U, 15U, 32U, 51U, 530U}) {
        const std::vector<std::uint32_t> expected = all_loops(lanes(LaneLevel::sse2), n);
        for (const LaneLevel level : {LaneLevel::avx2, LaneLevel::avx512}) {
            if (level <= best_lane_level()) {
                EXPECT_EQ(all_loops(lanes(level), n), expected) << n;
            }
        }
    }
}

TEST(TrainingLanes, DotIsASumOfProductsInDouble) {
    for (const std::size_t n : {0U, 1U, 17U, 100U}) {
        const std::vector<float> x = numbers(n, 1), y = numbers(n, 2);
        const double got =
            lanes(best_lane_level()).dot(x.data(), y.data(), static_cast<std::int64_t>(n));
        EXPECT_NEAR(got, functional(x, wide(y)), 1e-13);
    }
}

} // namespace
} // namespace foregather::kernels
