// SPDX-License-Identifier: Apache-2.0
// Medians, intervals, lines and slowdowns against known answers, and the table of the published
// case: what follows from its numbers.
#include "../../../src/job/bench_statistics.hpp"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace foregather::job {
namespace {

TEST(BenchStatistics, a_median_is_the_middle_value_or_the_mean_of_the_two) {
    EXPECT_EQ(median({}), 0);
    EXPECT_EQ(median({3}), 3);
    EXPECT_EQ(median({5, 1, 3}), 3);
    EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

// Of five pairs the median of a resample is the largest with probability
// P(3 or more of 5 draws are it) = 0.05792, so both ends of a 95 % interval are the extremes.
TEST(BenchStatistics, the_interval_of_five_pairs_is_from_the_least_to_the_largest_ratio) {
    const Ratio r = paired_ratio({9, 8, 7, 6, 5}, {10, 10, 10, 10, 10}, 1);
    EXPECT_DOUBLE_EQ(r.median, 0.7);
    EXPECT_DOUBLE_EQ(r.low, 0.5);
    EXPECT_DOUBLE_EQ(r.high, 0.9);
    EXPECT_TRUE(r.differs());
}

TEST(BenchStatistics, an_interval_covers_the_true_ratio_in_about_95_of_100_experiments) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> noise(0, 0.05);
    int covered = 0;
    for (int experiment = 0; experiment < 200; ++experiment) {
        std::vector<double> a, b;
        for (int pair = 0; pair < 9; ++pair) {
            a.push_back(0.8 * std::exp(noise(random)));
            b.push_back(1.0);
        }
        const Ratio r = paired_ratio(a, b, static_cast<std::uint64_t>(experiment));
        covered += r.low <= 0.8 && 0.8 <= r.high ? 1 : 0;
    }
    EXPECT_GE(covered, 180);
    EXPECT_LT(covered, 200);
}

TEST(BenchStatistics, equal_measurements_are_no_difference_and_one_pair_says_nothing) {
    EXPECT_FALSE(paired_ratio({1.1, 0.9, 1, 1.05, 0.96}, {1, 1, 1, 1, 1}, 0).differs());
    EXPECT_TRUE(paired_ratio({1.1, 1.2, 1.3, 1.1, 1.2}, {1, 1, 1, 1, 1}, 0).differs());
    EXPECT_FALSE(paired_ratio({1.1, 1.2, 1.3, 1.1}, {1, 1, 1, 1}, 0).differs()) << "too few";
    const Ratio one = paired_ratio({2}, {1}, 0);
    EXPECT_EQ(one.median, 2);
    EXPECT_FALSE(one.differs());
}

TEST(BenchStatistics, the_same_seed_gives_the_same_interval) {
    const std::vector<double> a = {1, 2, 3, 4, 5, 6, 7, 8}, b = {2, 3, 3, 5, 5, 5, 9, 9};
    const Ratio first = paired_ratio(a, b, 3);
    const Ratio again = paired_ratio(a, b, 3);
    EXPECT_EQ(first.low, again.low);
    EXPECT_EQ(first.high, again.high);
}

TEST(BenchStatistics, a_line_goes_through_its_points_or_through_the_origin_for_want_of_them) {
    const Line line = fit_line({100, 200, 400}, {3, 4, 6});
    EXPECT_FALSE(line.proportional);
    EXPECT_NEAR(line.at(300), 5, 1e-12);
    EXPECT_NEAR(line.at_zero, 2, 1e-12);
    const Line one = fit_line({100}, {3});
    EXPECT_TRUE(one.proportional);
    EXPECT_NEAR(one.at(200), 6, 1e-12);
    EXPECT_TRUE(fit_line({1, 2}, {1, 4}).proportional) << "it would be negative at 0";
}

// 10 s of work, of which some ran beside other work that made it 1.25 times as long: in 5 s of
// overlap it did 4 s worth.
TEST(BenchStatistics, a_slowdown_is_recovered_from_what_an_overlap_cost) {
    EXPECT_NEAR(slowdown(10, 11, 5), 0.25, 1e-12);
    EXPECT_EQ(slowdown(10, 11, 0), 0);
    EXPECT_EQ(slowdown(10, 11, 0.1), 0) << "a hundredth of it beside others explains nothing";
    EXPECT_EQ(slowdown(10, 9, 5), 0);
    EXPECT_EQ(slowdown(10, 20, 5), 3);
}

// "Before / after, seconds per rank and step: forward gather kernels 2.99 / 6.21, of which exposed
// 2.99 / 1.40; forward compute 8.54 / 9.74": 64 layers.
TEST(BenchStatistics, what_follows_from_the_published_case_is_what_was_published) {
    const Comparison c = compare({2.99, 2.99, 8.54}, {6.21, 1.40, 9.74}, 64);
    EXPECT_NEAR(c.before, 11.53, 0.005);
    EXPECT_NEAR(c.after, 11.14, 0.005);
    EXPECT_NEAR(c.perfect, 8.6, 0.05);
    EXPECT_NEAR(c.hidden, 1.59, 0.005);
    EXPECT_NEAR(c.tax, 1.20, 0.005);
    EXPECT_TRUE(c.lost_known);
    EXPECT_NEAR(c.lost, 0.75, 0.01);
}

TEST(BenchStatistics, perfect_overlap_of_longer_gathers_hides_all_computes_but_the_last) {
    EXPECT_NEAR(compare({8, 8, 4}, {8, 5, 4}, 8).perfect, 8.5, 1e-12);
    EXPECT_FALSE(compare({0, 0, 4}, {0, 0, 5}, 8).lost_known) << "nothing was there to hide";
    EXPECT_FALSE(compare({1, 1, 4}, {1, 0.95, 4.4}, 8).lost_known) << "hidden: 1 % of forward";
    EXPECT_FALSE(compare({1, 1, 4}, {1, 1.5, 4}, 8).lost_known) << "less than nothing hidden";
    EXPECT_FALSE(compare({1, 1, 4}, {1, 0.2, 3.9}, 8).lost_known) << "no tax to lose it to";
}

} // namespace
} // namespace foregather::job
