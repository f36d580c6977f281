// SPDX-License-Identifier: Apache-2.0
// Which depth is chosen for which times, and that no fixed depth would have been much faster.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/schedule/depth_choice.hpp>

#include "training_chain.hpp"

using namespace foregather;
using schedule::choose_prefetch_depths;
using schedule::Contention;
using schedule::DepthChoice;
using schedule::DepthRange;
using schedule::PassTimes;
using schedule::Plan;
using tests::TrainingRun;

namespace {

// Score over so many units, and training over as many.
schedule::PlanMaker score(int units) {
    return [units](int forward, int) {
        return schedule::forward_plan(tests::untied(units), 1, forward);
    };
}

schedule::PlanMaker training(TrainingRun run) {
    return [run](int forward, int backward) mutable {
        run.forward_depth = forward;
        run.backward_depth = backward;
        return run.plan();
    };
}

PassTimes even(int units, double compute, double gather) {
    PassTimes times;
    times.compute.assign(static_cast<std::size_t>(units), compute);
    times.gather.assign(static_cast<std::size_t>(units), gather);
    return times;
}

// Mean compute 1; every fifth unit has most of it.
PassTimes bursty(int units, double gather) {
    PassTimes times = even(units, 0.5, gather);
    for (std::size_t i = 0; i < times.compute.size(); i += 5) {
        times.compute[i] = 3.0;
    }
    return times;
}

PassTimes for_training(const PassTimes& forward) {
    PassTimes times = forward;
    for (auto c = forward.compute.rbegin(); c != forward.compute.rend(); ++c) {
        times.compute.push_back(2 * *c);
    }
    times.reduce = forward.gather;
    times.optimizer.assign(forward.gather.size(), 0.05);
    times.between = 0.1;
    return times;
}

} // namespace

TEST(DepthChoiceTest, nothing_to_hide_needs_no_depth) {
    const DepthChoice c = choose_prefetch_depths(score(10), even(10, 1, 0.01), {}, {0, 8});
    EXPECT_EQ(c.chosen.forward, 0);
    EXPECT_NEAR(c.chosen.share(), 0.01 / 1.01, 1e-9);
    EXPECT_EQ(c.reason, "the smallest depth below 2.0 %");
}

TEST(DepthChoiceTest, even_units_need_one) {
    const DepthChoice c = choose_prefetch_depths(score(10), even(10, 1, 0.5), {}, {0, 8});
    EXPECT_EQ(c.chosen.forward, 1);
    EXPECT_NEAR(c.chosen.share(), 0, 1e-9);
    ASSERT_EQ(c.candidates.size(), 9U);
    EXPECT_NEAR(c.candidates[0].share(), 1.0 / 3, 1e-9);
}

TEST(DepthChoiceTest, bursts_need_more) {
    const DepthChoice c = choose_prefetch_depths(score(20), bursty(20, 0.8), {}, {0, 8});
    EXPECT_GT(c.chosen.forward, 1);
    EXPECT_LT(c.chosen.share(), 0.02);
    EXPECT_GE(c.candidates[static_cast<std::size_t>(c.chosen.forward) - 1].share(), 0.02)
        << "the smallest that does";
}

TEST(DepthChoiceTest, where_gathers_are_the_bound_the_smallest_that_is_as_good_is_taken) {
    const DepthChoice c = choose_prefetch_depths(score(20), even(20, 1, 2.5), {}, {0, 8});
    EXPECT_EQ(c.chosen.forward, 1);
    EXPECT_NEAR(c.chosen.share(), 0.6, 1e-9);
    EXPECT_NE(c.reason.find("within 1.0 % of the shortest"), std::string::npos) << c.reason;
}

// Gathers are longer than computes, and yet nothing is exposed: with as many slots as units each is
// gathered once and for all.
TEST(DepthChoiceTest, where_all_units_stay_in_their_slots_the_reason_says_so) {
    const DepthChoice c = choose_prefetch_depths(score(5), even(5, 1, 2.5), {}, {0, 8});
    EXPECT_EQ(c.chosen.forward, 4);
    EXPECT_EQ(c.chosen.gather, 0);
    EXPECT_TRUE(c.resident);
    EXPECT_EQ(c.reason, "the smallest depth below 2.0 %; all units stay in their slots: nothing is "
                        "gathered after the first pass");
    const DepthChoice moving = choose_prefetch_depths(score(5), even(5, 1, 0.5), {}, {0, 8});
    EXPECT_FALSE(moving.resident);
    EXPECT_EQ(moving.reason, "the smallest depth below 2.0 %");
    EXPECT_FALSE(choose_prefetch_depths(score(5), even(5, 1, 0), {}, {0, 8}).resident)
        << "there was nothing to gather";
}

// Depth 1 hides all, at a price: computes are slowed by more than gathers cost.
TEST(DepthChoiceTest, a_hidden_depth_that_is_slower_is_not_called_none) {
    const DepthChoice c = choose_prefetch_depths(score(20), even(20, 1, 0.1), {3, 3}, {0, 2});
    EXPECT_EQ(c.chosen.forward, 0);
    EXPECT_LT(c.candidates[1].share(), 0.02);
    EXPECT_EQ(c.reason.find("no depth allowed"), std::string::npos) << c.reason;
    EXPECT_EQ(c.reason.find("depths below 2.0 % have longer steps"), 0U) << c.reason;
}

TEST(DepthChoiceTest, the_chosen_depth_is_within_two_percent_of_every_other) {
    for (const double ratio : {0.5, 1.0, 1.5, 2.5}) {
        for (const bool even_units : {true, false}) {
            for (const bool trains : {false, true}) {
                for (const Contention& contention : {Contention{}, Contention{0.15, 0.3}}) {
                    const PassTimes pass = even_units ? even(20, 1, ratio) : bursty(20, ratio);
                    TrainingRun run;
                    run.units = 20;
                    run.accumulate = run.passes = 2;
                    const auto maker = trains ? training(run) : score(20);
                    const PassTimes times = trains ? for_training(pass) : pass;
                    const DepthChoice c = choose_prefetch_depths(maker, times, contention, {0, 8},
                                                                 {0, trains ? 8 : 0});
                    for (int depth = 0; depth <= 8; ++depth) {
                        EXPECT_LE(c.chosen.step,
                                  1.02 * replay(maker(depth, depth), times, contention).step)
                            << "ratio " << ratio << ", depth " << depth << ", chosen "
                            << c.chosen.forward << (even_units ? " even" : " bursty");
                    }
                }
            }
        }
    }
}

TEST(DepthChoiceTest, no_depth_beyond_what_is_allowed_is_chosen) {
    std::mt19937 random(17);
    std::uniform_real_distribution<double> some(0, 1);
    for (int trial = 0; trial < 100; ++trial) {
        PassTimes times = even(12, 0, 0);
        std::generate(times.compute.begin(), times.compute.end(), [&] { return some(random); });
        std::generate(times.gather.begin(), times.gather.end(), [&] { return some(random); });
        const int most = trial % 4;
        const DepthChoice c = choose_prefetch_depths(score(12), times, {}, {0, most});
        EXPECT_LE(c.chosen.forward, most);
        EXPECT_EQ(c.candidates.size(), static_cast<std::size_t>(most) + 1);
    }
}

TEST(DepthChoiceTest, a_direction_that_is_fixed_stays) {
    TrainingRun run;
    run.units = 12;
    const PassTimes times = for_training(even(12, 1, 0.9));
    const DepthChoice backward = choose_prefetch_depths(training(run), times, {}, {3, 3}, {0, 8});
    EXPECT_EQ(backward.chosen.forward, 3);
    EXPECT_EQ(backward.chosen.backward, 1);
    for (const auto& c : backward.candidates) {
        EXPECT_EQ(c.forward, 3);
    }
    EXPECT_EQ(backward.candidates.size(), 9U);
    const DepthChoice both = choose_prefetch_depths(training(run), times, {}, {0, 8}, {0, 8});
    EXPECT_EQ(both.chosen.forward, both.chosen.backward);
}

TEST(DepthChoiceTest, the_same_times_make_the_same_choice) {
    const auto choose = [] {
        return choose_prefetch_depths(score(20), bursty(20, 1.3), {0.1, 0.2}, {0, 8});
    };
    const DepthChoice a = choose();
    const DepthChoice b = choose();
    EXPECT_EQ(a.chosen.forward, b.chosen.forward);
    EXPECT_EQ(a.reason, b.reason);
    EXPECT_EQ(a.chosen.step, b.chosen.step);
}

TEST(DepthChoiceTest, a_range_that_is_none_is_refused) {
    EXPECT_THROW(choose_prefetch_depths(score(3), even(3, 1, 1), {}, {2, 1}), base::Error);
    EXPECT_THROW(choose_prefetch_depths(score(3), even(3, 1, 1), {}, {-1, 1}), base::Error);
}
