// SPDX-License-Identifier: Apache-2.0
// The running log-sum-exp of the head: any cut, any order of pieces, ties, numbers that are not.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "host_set.hpp"

namespace foregather::kernels {
namespace {

struct Result {
    std::vector<float> logprob;
    std::vector<std::uint8_t> greedy;
    std::vector<std::int32_t> best;
};

struct Piece {
    std::size_t first, rows;
};

// x [S, C] under a head w [V, C] whose pieces come in the order given.
Result score(const std::vector<float>& x, const std::vector<float>& w, std::size_t width,
             const std::vector<std::int32_t>& targets, const std::vector<Piece>& pieces,
             int threads = 1) {
    HostSet host(threads);
    const std::size_t scored = targets.size();
    std::vector<float> maximum(scored), target(scored);
    std::vector<double> sum(scored);
    Result result{std::vector<float>(scored), std::vector<std::uint8_t>(scored, 7),
                  std::vector<std::int32_t>(scored)};
    const HeadState state{maximum, sum, target, result.best};
    host.kernels->head_begin(state, *host.stream);
    for (const Piece piece : pieces) {
        const ConstFloats rows(w.data() + piece.first * width, piece.rows * width);
        host.kernels->head_piece(slab_of(x), base::slab(rows), static_cast<Elements>(piece.first),
                                 targets, state, *host.stream);
    }
    host.kernels->head_end(state, targets, {result.logprob, result.greedy}, *host.stream);
    host.stream->sync();
    return result;
}

double logprob_by_definition(const float* x, const std::vector<float>& w, std::size_t width,
                             std::int32_t target) {
    std::vector<double> logits;
    double largest = -1e300, sum = 0;
    for (std::size_t v = 0; v < w.size() / width; ++v) {
        double logit = 0;
        for (std::size_t i = 0; i < width; ++i) {
            logit += static_cast<double>(x[i]) * static_cast<double>(w[v * width + i]);
        }
        logits.push_back(logit);
        largest = std::max(largest, logit);
    }
    for (const double logit : logits) {
        sum += std::exp(logit - largest);
    }
    return logits[static_cast<std::size_t>(target)] - largest - std::log(sum);
}

TEST(Head, FollowsItsDefinitionForAnyCut) {
    const std::size_t width = 24, vocabulary = 1301, scored = 150;
    const std::vector<float> x = numbers(scored * width, 1, 2.0F);
    const std::vector<float> w = numbers(vocabulary * width, 2);
    std::vector<std::int32_t> targets;
    for (std::size_t s = 0; s < scored; ++s) {
        targets.push_back(static_cast<std::int32_t>(s * 8 % vocabulary));
    }
    for (const auto& pieces : std::vector<std::vector<Piece>>{
             {{0, 1301}}, {{0, 512}, {512, 512}, {1024, 277}}, {{651, 650}, {0, 651}}}) {
        const Result result = score(x, w, width, targets, pieces, 2);
        for (std::size_t s = 0; s < scored; ++s) {
            const double exact = logprob_by_definition(x.data() + s * width, w, width, targets[s]);
            ASSERT_NEAR(result.logprob[s], exact, 3e-6) << s;
        }
    }
}

TEST(Head, IsExactForPowersOfTwo) {
    // x = 2: logits are ln 1/2, ln 1/4, ln 1/8, ln 1/8.
    const std::vector<float> w = {-0.34657359F, -0.69314718F, -1.03972077F, -1.03972077F};
    const std::vector<float> x = {2, 2, 2, 2};
    const std::vector<std::int32_t> targets = {0, 1, 2, 3};
    const Result result = score(x, w, 1, targets, {{0, 2}, {2, 2}});
    const std::vector<double> expected = {-0.69314718, -1.38629436, -2.07944154, -2.07944154};
    for (std::size_t s = 0; s < 4; ++s) {
        EXPECT_NEAR(result.logprob[s], expected[s], 2e-7);
    }
    EXPECT_EQ(result.greedy, (std::vector<std::uint8_t>{1, 0, 0, 0}));
}

TEST(Head, OfEqualLogitsTheLowerIdIsBestInAnyOrder) {
    // Logit 3 for ids 1, 4 and 600; pieces ascending and descending, ties within and across.
    std::vector<float> w(700, 0.5F);
    w[1] = w[4] = w[600] = 3.0F;
    const std::vector<float> x = {1, 1, 1};
    const std::vector<std::int32_t> targets = {1, 4, 600};
    for (const auto& pieces : std::vector<std::vector<Piece>>{
             {{0, 700}}, {{0, 3}, {3, 697}}, {{3, 697}, {0, 3}}, {{350, 350}, {0, 350}}}) {
        const Result result = score(x, w, 1, targets, pieces);
        EXPECT_EQ(result.best, (std::vector<std::int32_t>{1, 1, 1}));
        EXPECT_EQ(result.greedy, (std::vector<std::uint8_t>{1, 0, 0}));
    }
}

TEST(Head, UniformLogitsCostTheLogOfTheVocabulary) {
    const std::vector<float> w(97 * 3, 0.0F), x = numbers(6, 1);
    const Result result = score(x, w, 3, {96, 0}, {{0, 50}, {50, 47}});
    EXPECT_NEAR(result.logprob[0], -4.5747110, 1e-6);
    EXPECT_NEAR(result.logprob[1], -4.5747110, 1e-6);
    EXPECT_EQ(result.best, (std::vector<std::int32_t>{0, 0}));
}

TEST(Head, LargeLogitsDoNotOverflow) {
    const std::vector<float> w = {1e4F, 1e4F, -1e4F, 9999.0F};
    const std::vector<float> x = {1, 3e30F};
    const Result result = score(x, w, 1, {1, 0}, {{2, 2}, {0, 2}});
    EXPECT_NEAR(result.logprob[0], -std::log(2.0 + std::exp(-1.0)), 1e-6);
    EXPECT_NEAR(result.logprob[1], -std::log(2.0), 1e-6);
}

TEST(Head, ANumberThatIsNotFiniteNeverGivesAPlausibleAnswer) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float bad : {std::nanf(""), infinity, -infinity}) {
        for (const std::size_t place : {0U, 3U, 600U, 1299U}) {
            std::vector<float> w(1300, 0.5F);
            w[place] = bad;
            // Id 1 is the most likely one.
            w[1] = 0.75F;
            const Result result = score({1, 0}, w, 1, {1, 1}, {{650, 650}, {0, 650}});
            // -infinity beside finite logits is a probability of zero, and right; 0 x infinity is
            // not.
            const bool right = bad == -infinity;
            EXPECT_EQ(std::isnan(result.logprob[0]), !right) << bad << " at " << place;
            EXPECT_EQ(result.greedy[0], right ? 1 : 0) << bad << " at " << place;
            EXPECT_TRUE(std::isnan(result.logprob[1])) << bad << " at " << place;
            EXPECT_EQ(result.greedy[1], 0);
        }
    }
}

TEST(Head, ATargetThatNoPieceHoldsIsNan) {
    const std::vector<float> w(10, 0.0F);
    const Result result = score({1, 1}, w, 1, {10, -1}, {{0, 10}});
    EXPECT_TRUE(std::isnan(result.logprob[0]));
    EXPECT_TRUE(std::isnan(result.logprob[1]));
}

// All that the head can be asked for, of x [S, C] under w [V, C].
struct Everything {
    std::vector<float> logprob, entropy, top_logprobs, logits;
    std::vector<std::int32_t> top;

    friend bool operator==(const Everything&, const Everything&) = default;
};
Everything everything(const std::vector<float>& x, const std::vector<float>& w, std::size_t width,
                      const std::vector<std::int32_t>& targets, const std::vector<Piece>& pieces,
                      std::size_t k, float scale, int threads = 1) {
    HostSet host(threads);
    const std::size_t rows = targets.size();
    std::vector<float> maximum(rows), target(rows);
    std::vector<double> sum(rows), weighted(rows);
    std::vector<std::int32_t> best(rows);
    std::vector<std::uint8_t> greedy(rows);
    std::vector<TopToken> list(rows * k);
    Everything result{std::vector<float>(rows), std::vector<float>(rows),
                      std::vector<float>(rows * k), std::vector<float>(rows * (w.size() / width)),
                      std::vector<std::int32_t>(rows * k)};
    const HeadState state{maximum, sum, target, best, scale, weighted, list, result.logits};
    host.kernels->head_begin(state, *host.stream);
    for (const Piece piece : pieces) {
        const ConstFloats part(w.data() + piece.first * width, piece.rows * width);
        host.kernels->head_piece(slab_of(x), base::slab(part), static_cast<Elements>(piece.first),
                                 targets, state, *host.stream);
    }
    host.kernels->head_end(
        state, targets, {result.logprob, greedy, result.entropy, result.top, result.top_logprobs},
        *host.stream);
    host.stream->sync();
    return result;
}

TEST(Head, EntropyAndTopTokensFollowTheirDefinitionsForAnyCutAndTemperature) {
    const std::size_t width = 24, vocabulary = 1301, rows = 40, k = 7;
    const std::vector<float> x = numbers(rows * width, 1, 2.0F);
    const std::vector<float> w = numbers(vocabulary * width, 2);
    const std::vector<std::int32_t> targets(rows, 12);
    for (const float scale : {1.0F, 0.5F, 4.0F}) {
        for (const auto& pieces :
             std::vector<std::vector<Piece>>{{{0, 1301}}, {{651, 650}, {0, 651}}}) {
            const Everything found = everything(x, w, width, targets, pieces, k, scale, 2);
            for (std::size_t s = 0; s < rows; ++s) {
                const float* logits = found.logits.data() + s * vocabulary;
                std::vector<std::int32_t> order(vocabulary);
                std::iota(order.begin(), order.end(), 0);
                std::stable_sort(order.begin(), order.end(),
                                 [&](auto a, auto b) { return logits[a] > logits[b]; });
                double sum = 0, entropy = 0;
                const auto exponent = [&](std::size_t v) {
                    return static_cast<double>(scale) *
                           (static_cast<double>(logits[v]) - static_cast<double>(logits[order[0]]));
                };
                for (std::size_t v = 0; v < vocabulary; ++v) {
                    sum += std::exp(exponent(v));
                }
                for (std::size_t v = 0; v < vocabulary; ++v) {
                    const double logprob = exponent(v) - std::log(sum);
                    entropy -= std::exp(logprob) * logprob;
                }
                ASSERT_NEAR(found.entropy[s], entropy, 3e-6);
                ASSERT_NEAR(found.logprob[s], exponent(12) - std::log(sum), 4e-6);
                for (std::size_t i = 0; i < k; ++i) {
                    ASSERT_EQ(found.top[s * k + i], order[i]);
                    ASSERT_NEAR(found.top_logprobs[s * k + i],
                                exponent(static_cast<std::size_t>(order[i])) - std::log(sum), 3e-6);
                }
            }
        }
    }
}

TEST(Head, OfEqualLogitsTopTokensAreThoseOfLowerIdsInAnyOrder) {
    std::vector<float> w(700, 0.5F);
    w[600] = w[4] = 3.0F;
    for (const auto& pieces : std::vector<std::vector<Piece>>{{{0, 700}}, {{350, 350}, {0, 350}}}) {
        const Everything found = everything({1}, w, 1, {-1}, pieces, 5, 1.0F);
        EXPECT_EQ(found.top, (std::vector<std::int32_t>{4, 600, 0, 1, 2}));
        EXPECT_TRUE(std::isnan(found.logprob[0])); // no target
    }
    const Everything all = everything({1}, {0, 2, 1}, 1, {-1}, {{0, 3}}, 3, 1.0F);
    EXPECT_EQ(all.top, (std::vector<std::int32_t>{1, 2, 0})); // the whole vocabulary
}

TEST(Head, EntropyOfAUniformAndOfACertainDistribution) {
    const Everything uniform =
        everything({1}, std::vector<float>(97, 0.0F), 1, {0}, {{0, 97}}, 1, 1.0F);
    EXPECT_NEAR(uniform.entropy[0], std::log(97.0), 1e-6);
    const float infinity = std::numeric_limits<float>::infinity();
    const Everything certain =
        everything({1}, {-infinity, 5.0F, -1e30F, -infinity}, 1, {1}, {{2, 2}, {0, 2}}, 4, 1.0F);
    EXPECT_EQ(certain.entropy[0], 0.0F);
    EXPECT_EQ(certain.top, (std::vector<std::int32_t>{1, 2, 0, 3}));
    EXPECT_EQ(certain.top_logprobs[3], -infinity);
}

TEST(Head, NothingThatIsAskedForIsPlausibleBesideANumberThatIsNotFinite) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
        const Everything found = everything({1}, {0.5F, bad, 2.0F}, 1, {0}, {{0, 3}}, 2, 0.5F);
        EXPECT_TRUE(std::isnan(found.logprob[0]) && std::isnan(found.entropy[0]));
        EXPECT_EQ(found.top, (std::vector<std::int32_t>{-1, -1}));
        EXPECT_TRUE(std::isnan(found.top_logprobs[0]) && std::isnan(found.top_logprobs[1]));
    }
}

TEST(Head, WhatElseIsAskedForChangesNoBitOfTheLogprobAndThreadsNone) {
    const std::vector<float> x = numbers(300 * 16, 1, 3.0F), w = numbers(1111 * 16, 2);
    const std::vector<std::int32_t> targets(300, 77);
    const std::vector<Piece> pieces = {{0, 600}, {600, 511}};
    const Everything one = everything(x, w, 16, targets, pieces, 3, 1.0F);
    EXPECT_EQ(one.logprob, score(x, w, 16, targets, pieces).logprob);
    EXPECT_EQ(everything(x, w, 16, targets, pieces, 3, 1.0F, 3), one);
}

TEST(Head, HasTheSameBitsOnAnyNumberOfThreads) {
    const std::vector<float> x = numbers(300 * 16, 1, 3.0F), w = numbers(1111 * 16, 2);
    std::vector<std::int32_t> targets;
    for (std::int32_t s = 0; s < 300; ++s) {
        targets.push_back(s * 3);
    }
    const std::vector<Piece> pieces = {{600, 511}, {0, 600}};
    const Result one = score(x, w, 16, targets, pieces, 1);
    for (const int threads : {2, 3}) {
        const Result many = score(x, w, 16, targets, pieces, threads);
        EXPECT_EQ(many.logprob, one.logprob);
        EXPECT_EQ(many.best, one.best);
    }
}

} // namespace
} // namespace foregather::kernels
