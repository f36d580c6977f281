// SPDX-License-Identifier: Apache-2.0
// Quantiles from bounded samples, and the spans that are kept of a run: first and last passes.
#include <vector>

#include <gtest/gtest.h>

#include <foregather/schedule/span.hpp>
#include <foregather/schedule/witness.hpp>

using namespace foregather;
using schedule::Samples;
using schedule::Span;
using schedule::SpanStore;

namespace {

// Passes of the spans that a store of `kept` passes holds after a run of `passes`, two spans each.
std::vector<std::int64_t> passes_kept(std::int64_t kept, std::int64_t passes) {
    SpanStore store(kept);
    for (std::int64_t pass = 0; pass < passes; ++pass) {
        for (std::int64_t i = 0; i < 2; ++i) {
            Span span;
            span.pass = pass;
            span.sequence = 2 * pass + i;
            store.add(span);
        }
    }
    std::vector<std::int64_t> held;
    std::int64_t last = -1;
    for (const Span& span : store.all()) {
        EXPECT_GT(span.sequence, last) << "in the order they came";
        last = span.sequence;
        held.push_back(span.pass);
    }
    return held;
}

using Passes = std::vector<std::int64_t>;

} // namespace

TEST(SamplesTest, quantiles_are_by_nearest_rank) {
    Samples samples;
    for (int i = 100; i >= 1; --i) {
        samples.add(i);
    }
    EXPECT_EQ(samples.quantile(0), 1);
    EXPECT_EQ(samples.quantile(0.5), 50);
    EXPECT_EQ(samples.quantile(0.95), 95);
    EXPECT_EQ(samples.quantile(1), 100);
}

TEST(SamplesTest, of_an_odd_number_the_median_is_the_middle_one) {
    Samples samples;
    for (const double value : {9.0, 1.0, 5.0}) {
        samples.add(value);
    }
    EXPECT_EQ(samples.quantile(0.5), 5);
}

TEST(SamplesTest, none_have_quantile_zero_and_one_is_every_quantile) {
    Samples samples;
    EXPECT_EQ(samples.quantile(0.5), 0);
    samples.add(3);
    EXPECT_EQ(samples.quantile(0.01), 3);
    EXPECT_EQ(samples.quantile(0.99), 3);
}

TEST(SamplesTest, thinning_keeps_every_second_again_and_again_whatever_comes) {
    Samples samples;
    constexpr int n = 1'000'000; // limits of 2^18 are met at 2^18, 2^19 and, thinned twice, beyond
    for (int i = 0; i < n; ++i) {
        samples.add(i);
    }
    for (const double q : {0.0, 0.25, 0.5, 0.95, 1.0}) {
        EXPECT_NEAR(samples.quantile(q), q * n, 8);
        EXPECT_EQ(static_cast<int>(samples.quantile(q)) % 4, 0) << "kept at a stride of 4 by now";
    }
}

TEST(SpanStoreTest, keeps_the_first_and_the_last_passes) {
    EXPECT_EQ(passes_kept(4, 10), (Passes{0, 0, 1, 1, 8, 8, 9, 9}));
    EXPECT_EQ(passes_kept(3, 10), (Passes{0, 0, 1, 1, 9, 9}));
    EXPECT_EQ(passes_kept(2, 3), (Passes{0, 0, 2, 2}));
}

TEST(SpanStoreTest, keeps_all_of_a_run_that_is_short) {
    EXPECT_EQ(passes_kept(4, 3), (Passes{0, 0, 1, 1, 2, 2}));
    EXPECT_EQ(passes_kept(4, 4), (Passes{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST(SpanStoreTest, one_pass_is_the_first_and_none_is_none) {
    EXPECT_EQ(passes_kept(1, 10), (Passes{0, 0}));
    EXPECT_EQ(passes_kept(0, 10), Passes{});
}
