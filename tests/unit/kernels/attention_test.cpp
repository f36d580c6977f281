// SPDX-License-Identifier: Apache-2.0
// Attention against its definition in double: documents apart, the future unseen, heads in blocks.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "host_set.hpp"

namespace foregather::kernels {
namespace {

struct Case {
    std::vector<std::int32_t> offsets;
    AttentionShape shape;
    std::vector<float> q, k, v;

    Case(const std::vector<std::int32_t>& lengths, AttentionShape s, float scale = 1.0F)
        : offsets{0}, shape(s) {
        for (const std::int32_t n : lengths) {
            offsets.push_back(offsets.back() + n);
        }
        const auto tokens = static_cast<std::size_t>(offsets.back());
        const auto dim = static_cast<std::size_t>(s.head_dim);
        q = numbers(tokens * static_cast<std::size_t>(s.heads) * dim, 1, 2.0F * scale);
        k = numbers(tokens * static_cast<std::size_t>(s.kv_heads) * dim, 2, 2.0F);
        v = numbers(tokens * static_cast<std::size_t>(s.kv_heads) * dim, 3);
    }

    std::vector<float> run(int threads = 1, const std::string& library = "openblas") const {
        HostSet host(threads, {library, ""});
        std::vector<float> out(q.size(), std::nanf(""));
        std::vector<float> own_q = q, own_k = k, own_v = v;
        host.kernels->attention(own_q, own_k, own_v, offsets, shape, slab_of(out), *host.stream);
        host.stream->sync();
        return out;
    }
};

// One row of one head by the definition.
std::vector<double> row_by_definition(const Case& c, std::size_t t, std::size_t begin,
                                      std::size_t head) {
    const auto dim = static_cast<std::size_t>(c.shape.head_dim);
    const auto heads = static_cast<std::size_t>(c.shape.heads);
    const auto kv_heads = static_cast<std::size_t>(c.shape.kv_heads);
    const std::size_t kv = head / (heads / kv_heads);
    std::vector<double> scores;
    double largest = -1e300, sum = 0;
    if (c.shape.window > 0) {
        const auto window = static_cast<std::size_t>(c.shape.window);
        begin = std::max(begin, t + 1 > window ? t + 1 - window : 0);
    }
    for (std::size_t s = begin; s <= t; ++s) {
        double score = 0;
        for (std::size_t j = 0; j < dim; ++j) {
            score += static_cast<double>(c.q[(t * heads + head) * dim + j]) *
                     static_cast<double>(c.k[(s * kv_heads + kv) * dim + j]);
        }
        scores.push_back(score / std::sqrt(static_cast<double>(dim)));
        largest = std::max(largest, scores.back());
    }
    std::vector<double> row(dim, 0.0);
    for (std::size_t s = begin; s <= t; ++s) {
        const double p = std::exp(scores[s - begin] - largest);
        sum += p;
        for (std::size_t j = 0; j < dim; ++j) {
            row[j] += p * static_cast<double>(c.v[(s * kv_heads + kv) * dim + j]);
        }
    }
    for (double& x : row) {
        x /= sum;
    }
    return row;
}

double worst_error(const Case& c, const std::vector<float>& out) {
    const auto dim = static_cast<std::size_t>(c.shape.head_dim);
    const auto heads = static_cast<std::size_t>(c.shape.heads);
    double worst = 0;
    for (std::size_t d = 0; d + 1 < c.offsets.size(); ++d) {
        const auto begin = static_cast<std::size_t>(c.offsets[d]);
        for (std::size_t t = begin; t < static_cast<std::size_t>(c.offsets[d + 1]); ++t) {
            for (std::size_t h = 0; h < heads; ++h) {
                const std::vector<double> row = row_by_definition(c, t, begin, h);
                for (std::size_t j = 0; j < dim; ++j) {
                    const double error =
                        std::abs(static_cast<double>(out[(t * heads + h) * dim + j]) - row[j]);
                    worst = error <= worst ? worst : error;
                }
            }
        }
    }
    return worst;
}

TEST(Attention, FollowsItsDefinitionForDocumentsOfAnyLength) {
    for (const auto& lengths : std::vector<std::vector<std::int32_t>>{
             {1}, {2}, {63, 64, 65}, {1, 1, 1, 5}, {130, 0, 3}, {257}, {40, 300, 1, 129}}) {
        const Case c(lengths, {.heads = 4, .kv_heads = 2, .head_dim = 8});
        for (const std::string& library : libraries()) {
            EXPECT_LT(worst_error(c, c.run(1, library)), 2e-6) << lengths.size() << ' ' << library;
        }
    }
}

TEST(Attention, FollowsItsDefinitionForHeadsOfAnyShape) {
    for (const AttentionShape shape :
         {AttentionShape{1, 1, 2}, {3, 1, 10}, {9, 3, 64}, {2, 2, 128}, {6, 3, 14}}) {
        const Case c({70, 141}, shape, 0.3F);
        EXPECT_LT(worst_error(c, c.run()), 2e-6) << shape.heads << " heads";
    }
}

TEST(Attention, IsExactInALiteralCase) {
    HostSet host;
    // Scores of the second token are 0 and ln 3 (q . k / sqrt 4): weights 1/4 and 3/4.
    std::vector<float> q = {0, 0, 0, 0, 2.0F * std::log(3.0F), 0, 0, 0};
    std::vector<float> k = {0, 0, 0, 0, 1, 0, 0, 0};
    std::vector<float> v = {4, 8, 0, -4, 0, 4, 8, 4};
    const std::vector<std::int32_t> offsets = {0, 2};
    std::vector<float> out(8);
    host.kernels->attention(q, k, v, offsets, {1, 1, 4}, slab_of(out), *host.stream);
    host.stream->sync();
    const std::vector<float> expected = {4, 8, 0, -4, 1, 5, 6, 2};
    for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_NEAR(out[i], expected[i], 1e-6F) << i;
    }
}

TEST(Attention, HasTheSameBitsOnAnyNumberOfThreads) {
    const Case c({5, 200, 1, 77}, {.heads = 4, .kv_heads = 2, .head_dim = 8});
    const std::vector<float> expected = c.run(1);
    EXPECT_EQ(c.run(2), expected);
    EXPECT_EQ(c.run(3), expected);
}

TEST(Attention, NeverSeesTheFutureOrAnotherDocument) {
    const Case c({90, 90}, {.heads = 2, .kv_heads = 1, .head_dim = 4});
    const std::vector<float> expected = c.run();
    Case changed = c; // keys and values of tokens 50 .. 89 of document 0 become others
    for (std::size_t i = 50 * 4; i < 90 * 4; ++i) {
        changed.k[i] = 3.0F - changed.k[i];
        changed.v[i] = 5.0F;
    }
    const std::vector<float> out = changed.run();
    const std::size_t row = 2 * 4;
    for (std::size_t i = 0; i < 50 * row; ++i) {
        ASSERT_EQ(out[i], expected[i]) << "token " << i / row;
    }
    for (std::size_t i = 90 * row; i < 180 * row; ++i) {
        ASSERT_EQ(out[i], expected[i]) << "token " << i / row;
    }
    EXPECT_NE(out[50 * row], expected[50 * row]);
}

TEST(Attention, AWindowCountsTheTokenItself) {
    for (const Elements window : {1, 2, 7, 64, 100, 129}) {
        const Case c({40, 300, 1}, {.heads = 2, .kv_heads = 1, .head_dim = 4, .window = window});
        EXPECT_LT(worst_error(c, c.run()), 2e-6) << window;
    }
}

TEST(Attention, AWindowThatHidesNothingChangesNoBit) {
    Case c({129, 300}, {.heads = 2, .kv_heads = 1, .head_dim = 4});
    const std::vector<float> expected = c.run();
    c.shape.window = 300;
    EXPECT_EQ(c.run(), expected);
    c.shape.window = 299;
    EXPECT_NE(c.run(), expected);
}

TEST(Attention, StaysFiniteWithHugeScores) {
    Case c({300}, {.heads = 1, .kv_heads = 1, .head_dim = 4}, 1e6F);
    for (float& x : c.k) {
        x *= 1e6F;
    }
    const std::vector<float> out = c.run();
    for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_TRUE(std::isfinite(out[i])) << i;
    }
    EXPECT_LT(worst_error(c, out), 1e-4);
}

TEST(Attention, ShowsANanRatherThanHidingIt) {
    Case c({200}, {.heads = 1, .kv_heads = 1, .head_dim = 4});
    c.k[150 * 4] = std::nanf("");
    const std::vector<float> out = c.run();
    EXPECT_TRUE(std::isnan(out[150 * 4]));
    EXPECT_TRUE(std::isnan(out[199 * 4]));
}

TEST(Attention, RefusesOffsetsThatDoNotCoverTheTokens) {
    for (const auto& offsets :
         std::vector<std::vector<std::int32_t>>{{0, 3}, {0, 5}, {1, 4}, {0, 3, 2, 4}, {0}}) {
        HostSet host;
        std::vector<float> q(4 * 2), k(4 * 2), v(4 * 2), out(4 * 2);
        host.kernels->attention(q, k, v, offsets, {1, 1, 2}, slab_of(out), *host.stream);
        const std::string text = refusal_of([&] { host.stream->sync(); });
        EXPECT_NE(text.find("offsets"), std::string::npos) << text;
    }
}

} // namespace
} // namespace foregather::kernels
