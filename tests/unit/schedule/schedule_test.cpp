// SPDX-License-Identifier: Apache-2.0
// What a schedule says of itself: its depth after clamping, its slots, its words; that it never
// gathers more than must be, and is the same whenever it is made.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/schedule/schedule.hpp>

#include "replay.hpp"

using namespace foregather;
using schedule::Schedule;
using schedule::Step;
using tests::Chain;

namespace {

void expect_fewest(const Chain& chain, std::int64_t passes, int depth) {
    Schedule schedule(chain, passes, depth);
    const int in_force = schedule.depth();
    std::vector<int> needs;
    std::vector<std::int64_t> issued_at;
    for (std::int64_t use = 0; use < schedule.uses(); ++use) {
        needs.push_back(chain[static_cast<std::size_t>(use) % chain.size()]);
        issued_at.push_back(std::max<std::int64_t>(use - in_force, 0));
    }
    EXPECT_EQ(tests::gathers_in(tests::steps_of(schedule)),
              tests::fewest_gathers(needs, issued_at, in_force + 1))
        << tests::words(chain, passes, depth);
}

} // namespace

TEST(ScheduleTest, gathers_no_more_than_the_best_choice_of_slots_can) {
    for (int units = 1; units <= 6; ++units) {
        for (int depth = 0; depth <= 4; ++depth) {
            for (std::int64_t passes = 1; passes <= 3; ++passes) {
                expect_fewest(tests::untied(units), passes, depth);
                for (int pieces = 1; pieces <= units; ++pieces) {
                    expect_fewest(tests::tied(units, pieces), passes, depth);
                }
            }
        }
    }
}

TEST(ScheduleTest, gathers_no_more_than_the_best_choice_in_chains_without_pattern) {
    std::uint32_t seed = 7;
    for (int trial = 0; trial < 400; ++trial) {
        Chain chain(10);
        for (base::UnitId& unit : chain) {
            seed = seed * 1664525U + 1013904223U;
            unit = static_cast<int>((seed >> 8) % 6);
        }
        expect_fewest(chain, 2, trial % 5);
    }
}

TEST(ScheduleTest, b4_a_depth_above_units_less_one_is_clamped) {
    EXPECT_EQ(Schedule(tests::untied(3), 2, 8).depth(), 2);
    EXPECT_EQ(Schedule(tests::untied(3), 2, 8).slots(), 3);
    EXPECT_EQ(Schedule(tests::untied(2), 2, 5).depth(), 1);
    EXPECT_EQ(Schedule(tests::untied(1), 2, 1).depth(), 0);
    EXPECT_EQ(Schedule(tests::untied(1), 2, 1).slots(), 1);
    EXPECT_EQ(Schedule(tests::tied(3, 3), 2, 8).depth(), 2) << "of distinct units, not of uses";
    EXPECT_EQ(Schedule({0, 5, 9}, 2, 8).depth(), 2) << "of units used, not of numbers";
    EXPECT_EQ(Schedule(tests::untied(20), 2, 3).depth(), 3);
    EXPECT_EQ(Schedule(tests::untied(20), 2, 0).slots(), 1);
}

TEST(ScheduleTest, b5_slots_do_not_grow_with_the_model) {
    for (const int units : {3, 12, 120}) {
        EXPECT_EQ(Schedule(tests::untied(units), 1, 1).slots(), 2);
        EXPECT_EQ(Schedule(tests::untied(units), 1, 0).slots(), 1);
    }
}

TEST(ScheduleTest, is_the_same_whenever_it_is_made) {
    const Chain chain = tests::tied(9, 4);
    EXPECT_EQ(tests::steps_of(Schedule(chain, 3, 3)), tests::steps_of(Schedule(chain, 3, 3)));
}

TEST(ScheduleTest, is_lazy_and_a_copy_goes_its_own_way) {
    Schedule schedule(tests::untied(4), std::int64_t{1} << 40,
                      2); // a list of steps would not fit anywhere
    Step step;
    for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(schedule.next(step));
    }
    Schedule copy = schedule;
    Step other;
    ASSERT_TRUE(schedule.next(step));
    ASSERT_TRUE(copy.next(other));
    EXPECT_EQ(step, other);
}

TEST(ScheduleTest, counts_uses_and_names_units) {
    const Schedule schedule({4, 2, 4}, 5, 1);
    EXPECT_EQ(schedule.uses_per_pass(), 3);
    EXPECT_EQ(schedule.uses(), 15);
    EXPECT_EQ(schedule.unit_of(1), 2);
    EXPECT_EQ(schedule.unit_of(14), 4);
}

TEST(ScheduleTest, no_passes_have_no_steps) {
    Step step;
    EXPECT_FALSE(Schedule(tests::untied(3), 0, 1).next(step));
}

TEST(ScheduleTest, describes_its_steps_in_words) {
    EXPECT_EQ(schedule::describe(Schedule({0, 1}, 1, 1), {"embedding.0", "layer.0"}, 10),
              "  gather  use 0  embedding.0 -> slot 0\n"
              "  gather  use 1  layer.0 -> slot 1\n"
              "  compute use 0  embedding.0 in slot 0\n"
              "  compute use 1  layer.0 in slot 1\n");
}

TEST(ScheduleTest, describes_no_more_lines_than_asked_for) {
    EXPECT_EQ(schedule::describe(Schedule({0, 1}, 1, 1), {"embedding.0", "layer.0"}, 1),
              "  gather  use 0  embedding.0 -> slot 0\n"
              "  ...\n");
    EXPECT_EQ(schedule::describe(Schedule({0}, 1, 0), {"layer.0"}, 2),
              "  gather  use 0  layer.0 -> slot 0\n"
              "  compute use 0  layer.0 in slot 0\n");
}
