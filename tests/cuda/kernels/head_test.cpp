// SPDX-License-Identifier: Apache-2.0
// The head of the emulated device against the host's: any cut and order of pieces, ties, top
// tokens, entropy, temperature, logits that are no numbers.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_set.hpp"

namespace foregather::kernels {
namespace {

using base::DType;

struct Asked {
    std::size_t top = 0;
    bool entropy = false;
    bool logits = false;
    float scale = 1.0F;
};

struct Result {
    std::vector<float> logprob, entropy, top_logprobs, logits;
    std::vector<std::uint8_t> greedy;
    std::vector<std::int32_t> top_tokens;
};

bool same_bits(const Result& a, const Result& b) {
    using kernels::same_bits;
    return same_bits(a.logprob, b.logprob) && same_bits(a.entropy, b.entropy) &&
           same_bits(a.top_logprobs, b.top_logprobs) && same_bits(a.logits, b.logits) &&
           same_bits(a.greedy, b.greedy) && same_bits(a.top_tokens, b.top_tokens);
}

struct Head {
    std::size_t width = 8;
    std::vector<float> x, w;
    std::vector<std::int32_t> targets;
    std::vector<std::pair<std::size_t, std::size_t>> pieces; // first row, rows
    DType type = DType::f32;

    // One piece that holds all.
    Head(std::size_t scored, std::size_t vocabulary) : pieces{{0, vocabulary}} {
        x = numbers(scored * width, 1, 3.0F);
        w = numbers(vocabulary * width, 2, 2.0F);
        for (std::size_t s = 0; s < scored; ++s) {
            targets.push_back(static_cast<std::int32_t>(s * 7 % vocabulary));
        }
    }

    Result run(HostSet& set, const Asked& asked) const {
        const std::size_t scored = targets.size(), vocabulary = w.size() / width;
        DeviceVector<float> maximum(none(scored)), target(none(scored)),
            logits(none(asked.logits ? scored * vocabulary : 0)), logprob(none(scored)),
            entropy(none(asked.entropy ? scored : 0)), top_logprobs(none(scored * asked.top));
        DeviceVector<double> sum(std::vector<double>(scored, 1.0)),
            weighted(std::vector<double>(asked.entropy ? scored : 0, 1.0));
        DeviceVector<std::int32_t> best(std::vector<std::int32_t>(scored, 0)), came(targets),
            top_tokens(std::vector<std::int32_t>(scored * asked.top, 0));
        DeviceVector<TopToken> top(std::vector<TopToken>(scored * asked.top));
        DeviceVector<std::uint8_t> greedy(std::vector<std::uint8_t>(scored, 7));
        Numbers activations(x, type);
        const HeadState state{*maximum,    *sum,      *target, *best,
                              asked.scale, *weighted, *top,    *logits};
        set.kernels->head_begin(state, *set.stream);
        for (const auto& [first, rows] : pieces) {
            const auto begin = w.begin() + static_cast<std::ptrdiff_t>(first * width);
            Numbers piece({begin, begin + static_cast<std::ptrdiff_t>(rows * width)}, type);
            set.kernels->head_piece(activations.slab(), piece.slab(), static_cast<Elements>(first),
                                    Ids(*came), state, *set.stream);
            set.stream->sync();
        }
        set.kernels->head_end(state, Ids(*came),
                              {*logprob, *greedy, *entropy, *top_tokens, *top_logprobs},
                              *set.stream);
        set.stream->sync();
        return {*logprob, *entropy, *top_logprobs, *logits, *greedy, *top_tokens};
    }

    // From both sides; bits alike in all orders of threads.
    void expect_the_hosts(const Asked& asked) const {
        const auto here = [&](HostSet& set) { return run(set, asked); };
        const Result cuda = emulated(here), host = on_host(here);
        constexpr double tolerance = 3e-6;
        EXPECT_LE(worst_difference(cuda.logprob, host.logprob), tolerance);
        EXPECT_LE(worst_difference(cuda.entropy, host.entropy), tolerance);
        EXPECT_LE(worst_difference(cuda.top_logprobs, host.top_logprobs), tolerance);
        EXPECT_LE(worst_difference(cuda.logits, host.logits), tolerance);
        EXPECT_EQ(cuda.greedy, host.greedy);
        EXPECT_EQ(cuda.top_tokens, host.top_tokens);
    }

private:
    static std::vector<float> none(std::size_t n) { return std::vector<float>(n, nan); }
};

TEST(HeadOnCuda, ScoresAsTheHostDoes) {
    for (const std::size_t vocabulary : {1, 3, 257, 2500}) {
        Head(5, vocabulary).expect_the_hosts({});
    }
}

TEST(HeadOnCuda, AnswersAllThatMayBeAsked) {
    Head head(4, 301);
    head.pieces = {{100, 150}, {0, 100}, {250, 51}};
    for (const DType type : {DType::f32, DType::bf16}) {
        head.type = type;
        head.expect_the_hosts({7, true, true, 0.7F});
        head.expect_the_hosts({301, true, false, 2.0F});
        head.expect_the_hosts({1, false, true});
    }
}

TEST(HeadOnCuda, CutsManyTokensAndRowsIntoBlocks) {
    Head head(1030, 40);
    head.width = 2;
    head.x = numbers(1030 * 2, 1, 3.0F);
    head.w = numbers(40 * 2, 2, 3.0F);
    head.expect_the_hosts({0, true, true});
    Head wide(2, 8192 + 600);
    wide.targets = {8191, 8192};
    wide.expect_the_hosts({3, true, true});
}

TEST(HeadOnCuda, KeepsLongListsWhereTheyLie) { Head(1, 4500).expect_the_hosts({4200}); }

TEST(HeadOnCuda, OfEqualLogitsTakesTheLowerId) {
    Head head(3, 600);
    for (float& value : head.x) {
        value = std::round(value);
    }
    for (float& value : head.w) {
        value = std::round(value); // many products are the same, exactly
    }
    head.pieces = {{300, 300}, {0, 300}};
    head.expect_the_hosts({20, true});
    std::fill(head.w.begin(), head.w.end(), 1.0F);
    head.targets = {0, 1, 0};
    head.expect_the_hosts({20, true});
}

TEST(HeadOnCuda, EndsAsNanWhereALogitIsNotFinite) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const float value : {nan, infinity, -infinity}) {
        Head head(2, 300);
        head.pieces = {{0, 128}, {128, 172}};
        head.w[200 * head.width] = value;
        head.expect_the_hosts({5, true});
    }
    Head none(2, 300);
    std::fill(none.w.begin(), none.w.end(), nan);
    none.expect_the_hosts({5, true});
}

TEST(HeadOnCuda, ATargetThatNoPieceHoldsIsNan) {
    Head head(2, 100);
    head.targets = {100, -1};
    head.expect_the_hosts({});
}

TEST(HeadOnCuda, TopTokensBeyondTheVocabularyAreNone) { Head(2, 5).expect_the_hosts({8}); }

} // namespace
} // namespace foregather::kernels
