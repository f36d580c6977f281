// SPDX-License-Identifier: Apache-2.0
// The order law: which gathers come before which compute, and into which slots. Checked by
// replaying every schedule of small chains; the executor and the clock are elsewhere.
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

constexpr auto gather = Step::Kind::gather;
constexpr auto compute = Step::Kind::compute;

// Plays the steps of a schedule and finds the first breach of the law, "" if there is none.
class Replay {
public:
    Replay(const Chain& chain, std::int64_t passes, int depth)
        : chain_(chain), total_(static_cast<std::int64_t>(chain.size()) * passes),
          depth_(std::min(depth, tests::distinct(chain) - 1)),
          slots_(static_cast<std::size_t>(depth_) + 1, -1) {}

    std::string breach(const std::vector<Step>& steps) {
        for (const Step& step : steps) {
            std::string wrong = step.kind == gather ? gathered(step) : computed(step);
            if (!wrong.empty()) {
                return wrong + " (step for use " + std::to_string(step.use) + ", compute at " +
                       std::to_string(next_) + ")";
            }
        }
        return next_ == total_ ? "" : "the schedule ends before the run";
    }

private:
    base::UnitId unit_at(std::int64_t use) const {
        return chain_[static_cast<std::size_t>(use) % chain_.size()];
    }
    bool resident(base::UnitId unit) const {
        return std::find(slots_.begin(), slots_.end(), unit) != slots_.end();
    }

    std::string gathered(const Step& step) {
        if (step.use < next_ || step.use > next_ + depth_ || step.use >= total_) {
            return "a gather outside of uses i .. i + depth";
        }
        if (step.use <= last_gather_) {
            return "gathers out of order";
        }
        last_gather_ = step.use;
        if (step.unit != unit_at(step.use)) {
            return "a gather of another unit than the use's";
        }
        if (step.slot < 0 || step.slot > depth_) {
            return "a slot that does not exist";
        }
        if (resident(step.unit)) {
            return "a resident unit is gathered";
        }
        const base::UnitId victim = slots_[static_cast<std::size_t>(step.slot)];
        for (std::int64_t use = next_; victim >= 0 && use <= step.use; ++use) {
            if (unit_at(use) == victim) {
                return "a slot is overwritten whose unit is used in i .. k";
            }
        }
        if (victim >= 0 && std::find(slots_.begin(), slots_.end(), -1) != slots_.end()) {
            return "a unit is evicted although a slot is free";
        }
        slots_[static_cast<std::size_t>(step.slot)] = step.unit;
        return "";
    }

    std::string computed(const Step& step) {
        if (step.use != next_) {
            return "computes out of order";
        }
        if (step.unit != unit_at(step.use)) {
            return "a compute of another unit than the use's";
        }
        if (step.slot < 0 || step.slot > depth_ ||
            slots_[static_cast<std::size_t>(step.slot)] != step.unit) {
            return "a compute does not find its unit in its slot";
        }
        for (std::int64_t use = next_; use <= std::min(next_ + depth_, total_ - 1); ++use) {
            if (!resident(unit_at(use))) {
                return "use " + std::to_string(use) + " was not gathered ahead";
            }
        }
        ++next_;
        return "";
    }

    Chain chain_;
    std::int64_t total_;
    int depth_;
    Chain slots_;
    std::int64_t next_ = 0;
    std::int64_t last_gather_ = -1;
};

// "" if the schedule keeps the law, else the first breach and where.
std::string breach(const Chain& chain, std::int64_t passes, int depth) {
    const std::string wrong =
        Replay(chain, passes, depth).breach(tests::steps_of(Schedule(chain, passes, depth)));
    return wrong.empty() ? "" : wrong + " in " + tests::words(chain, passes, depth);
}

} // namespace

TEST(OrderLawTest, holds_for_untied_chains) {
    for (int units = 1; units <= 20; ++units) {
        for (int depth = 0; depth <= 8; ++depth) {
            for (std::int64_t passes = 1; passes <= 4; ++passes) {
                ASSERT_EQ(breach(tests::untied(units), passes, depth), "");
            }
        }
    }
}

TEST(OrderLawTest, holds_for_tied_chains) {
    for (int units = 1; units <= 20; ++units) {
        for (const int pieces : {1, (units + 2) / 3, units - 1, units}) {
            for (int depth = 0; depth <= 8; ++depth) {
                for (std::int64_t passes = 1; passes <= 4; ++passes) {
                    ASSERT_EQ(breach(tests::tied(units, std::max(pieces, 1)), passes, depth), "");
                }
            }
        }
    }
}

TEST(OrderLawTest, holds_for_chains_without_any_pattern) {
    std::uint32_t seed = 1; // a linear congruence: the same chains everywhere
    const auto draw = [&seed](std::uint32_t below) {
        seed = seed * 1664525U + 1013904223U;
        return static_cast<int>((seed >> 8) % below);
    };
    for (int trial = 0; trial < 2000; ++trial) {
        const int units = 1 + draw(8);
        Chain chain(static_cast<std::size_t>(1 + draw(14)));
        for (base::UnitId& unit : chain) {
            unit = draw(static_cast<std::uint32_t>(units));
        }
        ASSERT_EQ(breach(chain, 1 + draw(3), draw(7)), "");
    }
}

TEST(OrderLawTest, each_unit_is_gathered_once_per_pass_when_slots_are_fewer_than_units) {
    for (int units = 2; units <= 20; ++units) {
        for (int depth = 0; depth + 1 < units && depth <= 8; ++depth) {
            for (std::int64_t passes = 1; passes <= 4; ++passes) {
                std::vector<int> times(static_cast<std::size_t>(units * passes));
                for (const Step& step :
                     tests::steps_of(Schedule(tests::untied(units), passes, depth))) {
                    times[static_cast<std::size_t>(step.use)] += step.kind == gather ? 1 : 0;
                }
                ASSERT_EQ(std::count(times.begin(), times.end(), 1), units * passes)
                    << tests::words(tests::untied(units), passes, depth);
            }
        }
    }
}

TEST(OrderLawTest, each_unit_is_gathered_once_in_all_when_slots_hold_all_units) {
    for (int units = 1; units <= 9; ++units) {
        const auto steps = tests::steps_of(Schedule(tests::untied(units), 4, units - 1));
        EXPECT_EQ(tests::gathers_in(steps), units);
    }
}

TEST(OrderLawTest, gathers_run_exactly_depth_uses_ahead) {
    const Chain chain = tests::untied(12);
    for (int depth = 0; depth <= 8;
         ++depth) { // every use is gathered, so the last gather shows the reach
        std::int64_t reach = -1;
        for (const Step& step : tests::steps_of(Schedule(chain, 3, depth))) {
            if (step.kind == gather) {
                reach = step.use;
            } else {
                ASSERT_EQ(reach - step.use, std::min<std::int64_t>(depth, 35 - step.use));
            }
        }
    }
}

TEST(OrderLawTest, the_steps_of_four_units_at_depth_one) {
    const std::vector<Step> expected = {
        {gather, 0, 0, 0},  {gather, 1, 1, 1},  {compute, 0, 0, 0}, {gather, 2, 2, 0},
        {compute, 1, 1, 1}, {gather, 3, 3, 1},  {compute, 2, 2, 0}, {gather, 4, 0, 0},
        {compute, 3, 3, 1}, // into the next pass
        {gather, 5, 1, 1},  {compute, 4, 0, 0}, {gather, 6, 2, 0},  {compute, 5, 1, 1},
        {gather, 7, 3, 1},  {compute, 6, 2, 0}, {compute, 7, 3, 1}};
    EXPECT_EQ(tests::steps_of(Schedule({0, 1, 2, 3}, 2, 1)), expected);
}

TEST(OrderLawTest, the_steps_of_three_units_at_depth_zero) {
    const std::vector<Step> expected = {{gather, 0, 0, 0},  {compute, 0, 0, 0}, {gather, 1, 1, 0},
                                        {compute, 1, 1, 0}, {gather, 2, 2, 0},  {compute, 2, 2, 0}};
    EXPECT_EQ(tests::steps_of(Schedule({0, 1, 2}, 1, 0)), expected);
}

TEST(OrderLawTest, a_tied_head_finds_the_last_piece_where_it_is) {
    // Two pieces, no layer: piece 1 is used twice running, piece 0 is still there at depth 1.
    const std::vector<Step> expected = {{gather, 0, 0, 0},  {gather, 1, 1, 1},  {compute, 0, 0, 0},
                                        {compute, 1, 1, 1}, {compute, 2, 1, 1}, {compute, 3, 0, 0}};
    EXPECT_EQ(tests::steps_of(Schedule({0, 1, 1, 0}, 1, 1)), expected);
}
