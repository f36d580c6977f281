// SPDX-License-Identifier: Apache-2.0
// Kernels with bf16 weights: what is multiplied is rounded to nearest even, sums are not; the same
// with a library's own bf16 products and with operands widened for one that has none.
#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "host_set.hpp"

namespace foregather::kernels {
namespace {

float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

std::uint16_t rounded(const Lanes& table, float x) {
    std::uint16_t bits = 0;
    table.to_bf16(&x, &bits, 1);
    return bits;
}

TEST(Bf16, RoundsToNearestEvenAtEveryWidth) {
    for (const LaneLevel level : {LaneLevel::sse2, LaneLevel::avx2, LaneLevel::avx512}) {
        if (level > best_lane_level()) {
            continue;
        }
        const Lanes& table = lanes(level);
        EXPECT_EQ(rounded(table, 1.0F), 0x3F80);
        EXPECT_EQ(rounded(table, of_bits(0x3F808000)), 0x3F80); // a tie, to the even one below
        EXPECT_EQ(rounded(table, of_bits(0x3F818000)), 0x3F82); // a tie, to the even one above
        EXPECT_EQ(rounded(table, of_bits(0x3F808001)), 0x3F81);
        EXPECT_EQ(rounded(table, -of_bits(0x3F807FFF)), 0xBF80);
        EXPECT_EQ(rounded(table, of_bits(0x7F7FFFFF)), 0x7F80); // overflows to infinity
        EXPECT_EQ(rounded(table, of_bits(0x7F800001)), 0x7FC0); // a NaN stays one
    }
}

TEST(Bf16, PacksARowOverItself) {
    for (const std::size_t n : {1U, 15U, 16U, 17U, 100U}) {
        std::vector<float> row = numbers(n, 5);
        const Rounded expected(row);
        auto* bits = reinterpret_cast<std::uint16_t*>(row.data());
        lanes(best_lane_level()).to_bf16(row.data(), bits, static_cast<std::int64_t>(n));
        EXPECT_EQ(std::vector<std::uint16_t>(bits, bits + n), expected.bits) << n;
    }
}

class Bf16Kernels : public testing::TestWithParam<std::string> {
protected:
    HostSet host_{2, {GetParam(), ""}};
};
INSTANTIATE_TEST_SUITE_P(Bf16, Bf16Kernels, testing::ValuesIn(libraries()), name_of_library);

TEST_P(Bf16Kernels, ProductsSumRoundedOperandsInFp32) {
    struct Sizes {
        std::size_t tokens, in, out;
    };
    for (const Sizes n : {Sizes{1, 1, 1}, {3, 7, 5}, {129, 600, 300}, {300, 64, 1600}}) {
        const Rounded x(numbers(n.tokens * n.in, 1)), w(numbers(n.out * n.in, 2));
        const Rounded bias(numbers(n.out, 3));
        const std::vector<float> start = numbers(n.tokens * n.out, 4);
        std::vector<float> y = start;
        host_.kernels->product(x.slab(), w.slab(), bias.slab(), Kernels::Into::add, y,
                               static_cast<Elements>(n.tokens), *host_.stream);
        host_.stream->sync();
        double worst = 0;
        for (std::size_t t = 0; t < n.tokens; ++t) {
            for (std::size_t o = 0; o < n.out; ++o) {
                double sum =
                    static_cast<double>(start[t * n.out + o]) + static_cast<double>(bias.values[o]);
                for (std::size_t i = 0; i < n.in; ++i) {
                    sum += static_cast<double>(x.values[t * n.in + i]) *
                           static_cast<double>(w.values[o * n.in + i]);
                }
                worst = std::max(worst, std::abs(static_cast<double>(y[t * n.out + o]) - sum));
            }
        }
        EXPECT_LT(worst, 2e-6 * std::sqrt(static_cast<double>(n.in)) + 1e-6);
    }
}

TEST_P(Bf16Kernels, AttentionRoundsWhatItMultiplies) {
    constexpr Elements tokens = 150, heads = 4, kv_heads = 2, dim = 8;
    const std::vector<std::int32_t> offsets = {0, 20, 150};
    const Rounded q(numbers(tokens * heads * dim, 1)), k(numbers(tokens * kv_heads * dim, 2)),
        v(numbers(tokens * kv_heads * dim, 3));
    // fp32 attention of numbers that are bf16 already differs by the rounding of weights and
    // result.
    std::vector<float> eq = q.values, ek = k.values, ev = v.values;
    std::vector<float> expected(eq.size());
    const AttentionShape shape{heads, kv_heads, dim, 40};
    host_.kernels->attention(eq, ek, ev, offsets, shape, slab_of(expected), *host_.stream);
    std::vector<float> oq = numbers(tokens * heads * dim, 1),
                       ok = numbers(tokens * kv_heads * dim, 2),
                       ov = numbers(tokens * kv_heads * dim, 3);
    std::vector<std::uint16_t> out(expected.size());
    host_.kernels->attention(
        oq, ok, ov, offsets, shape,
        {reinterpret_cast<std::byte*>(out.data()), std::ssize(out), base::DType::bf16},
        *host_.stream);
    host_.stream->sync();
    double worst = 0, differing = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
        const double error =
            std::abs(static_cast<double>(of_bits(static_cast<std::uint32_t>(out[i]) << 16)) -
                     static_cast<double>(expected[i]));
        worst = std::max(worst, error);
        differing += error > 0 ? 1 : 0;
    }
    EXPECT_LT(worst, 0.01);
    EXPECT_GT(differing, 0);
}

TEST_P(Bf16Kernels, NormsAndGatesComputeInFp32AndRoundOnce) {
    const std::vector<float> x = numbers(3 * 40, 1, 3.0F), up = numbers(3 * 40, 2);
    const Rounded w(numbers(40, 3));
    std::vector<float> normed(x.size()), gated(x.size());
    std::vector<std::uint16_t> normed_bits(x.size()), gated_bits(x.size());
    const auto slab = [](std::vector<std::uint16_t>& bits) {
        return Slab{reinterpret_cast<std::byte*>(bits.data()), std::ssize(bits), base::DType::bf16};
    };
    host_.kernels->rms_norm(x, slab_of(w.values), 1e-5F, slab_of(normed), *host_.stream);
    host_.kernels->rms_norm(x, w.slab(), 1e-5F, slab(normed_bits), *host_.stream);
    host_.kernels->silu_gate(x, up, slab_of(gated), *host_.stream);
    host_.kernels->silu_gate(x, up, slab(gated_bits), *host_.stream);
    host_.stream->sync();
    EXPECT_EQ(normed_bits, Rounded(normed).bits);
    EXPECT_EQ(gated_bits, Rounded(gated).bits);
}

TEST_P(Bf16Kernels, EmbeddingsAreExactAndHeadsSumInFp32) {
    const std::vector<std::int32_t> ids = {3, 0, 5};
    const Rounded table(numbers(6 * 8, 1));
    std::vector<float> x(3 * 8);
    host_.kernels->embed(ids, 0, table.slab(), x, 8, *host_.stream);
    host_.stream->sync();
    for (std::size_t t = 0; t < 3; ++t) {
        for (std::size_t c = 0; c < 8; ++c) {
            EXPECT_EQ(x[t * 8 + c], table.values[static_cast<std::size_t>(ids[t]) * 8 + c]);
        }
    }
    const Rounded rows(x);
    const auto score = [&](ConstSlab in, ConstSlab w) {
        std::vector<float> maximum(3), target(3), logprob(3);
        std::vector<double> sum(3);
        std::vector<std::int32_t> best(3);
        std::vector<std::uint8_t> greedy(3);
        HeadState state;
        state.maximum = maximum;
        state.sum = sum;
        state.target = target;
        state.best_id = best;
        host_.kernels->head_begin(state, *host_.stream);
        host_.kernels->head_piece(in, w, 0, ids, state, *host_.stream);
        host_.kernels->head_end(state, ids, {logprob, greedy}, *host_.stream);
        host_.stream->sync();
        return logprob;
    };
    const std::vector<float> expected = score(slab_of(rows.values), slab_of(table.values));
    const std::vector<float> logprob = score(rows.slab(), table.slab());
    for (std::size_t s = 0; s < 3; ++s) {
        EXPECT_NEAR(logprob[s], expected[s], 1e-5F);
    }
}

} // namespace
} // namespace foregather::kernels
