// SPDX-License-Identifier: Apache-2.0
// The order law of training: forward and backward through one chain, across optimizer steps.
// Checked by replaying the schedules of a grid of small runs; gradients are another test's.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/schedule/schedule.hpp>

#include "training_chain.hpp"

using namespace foregather;
using schedule::Direction;
using schedule::Schedule;
using schedule::Step;
using tests::TrainingRun;

namespace {

constexpr auto gather = Step::Kind::gather;
constexpr auto compute = Step::Kind::compute;

// Plays the steps of a schedule and finds the first breach of the law, "" if there is none.
class TrainingReplay {
public:
    explicit TrainingReplay(const TrainingRun& run)
        : slots_(static_cast<std::size_t>(run.slots())),
          latest_(static_cast<std::size_t>(run.units), -1) {
        for (std::int64_t use = 0; use < run.uses(); ++use) {
            uses_.push_back({{run.unit_at(use), run.optimizer_step(use)},
                             run.needs_weights(use),
                             run.is_backward(use) ? Direction::backward : Direction::forward,
                             run.reach_of(use),
                             run.last_of_step(use)});
        }
        own_slots_ = !run.reshard;
    }

    std::string breach(Schedule& schedule) {
        for (Step step; schedule.next(step);) {
            std::string wrong = step.use < 0 || step.use >= total() ? "a use that does not exist"
                                : step.kind == gather               ? gathered(step)
                                                                    : computed(step, schedule);
            if (wrong.empty()) {
                wrong = named(step);
            }
            if (!wrong.empty()) {
                return wrong + " (step for use " + std::to_string(step.use) + ", compute at " +
                       std::to_string(next_) + ")";
            }
        }
        return next_ == total() ? "" : "the schedule ends before the run";
    }

private:
    struct Content { // weights of a unit as they are in an optimizer step
        base::UnitId unit = -1;
        std::int64_t optimizer_step = 0;
        bool operator==(const Content&) const = default;
    };
    struct PlannedUse {
        Content content;
        bool needs_weights;
        Direction direction;
        std::int64_t reach;
        std::int64_t last_of_step; // what is beyond cannot be gathered before the optimizer
    };

    std::int64_t total() const { return static_cast<std::int64_t>(uses_.size()); }
    const PlannedUse& at(std::int64_t use) const { return uses_[static_cast<std::size_t>(use)]; }
    bool resident(const Content& content) const {
        return std::find(slots_.begin(), slots_.end(), content) != slots_.end();
    }
    // The first use from the next compute on that reads this; total() if none does.
    std::int64_t next_read(const Content& content) const {
        std::int64_t use = next_;
        while (use < total() && !(at(use).needs_weights && at(use).content == content)) {
            if (at(use).content.optimizer_step > content.optimizer_step) {
                return total();
            }
            ++use;
        }
        return use;
    }

    std::string named(const Step& step) const {
        const PlannedUse& use = at(step.use);
        return step.unit != use.content.unit                       ? "another unit than the use's"
               : step.direction != use.direction                   ? "another direction"
               : step.optimizer_step != use.content.optimizer_step ? "another optimizer step"
                                                                   : "";
    }

    std::string gathered(const Step& step) {
        if (!at(step.use).needs_weights) {
            return "a gather for a use that needs no weights";
        }
        if (step.use < next_ || step.use > at(next_).reach) {
            return "a gather outside of uses i .. i + depth";
        }
        if (step.use <= last_gather_) {
            return "gathers out of order";
        }
        last_gather_ = step.use;
        const Content& content = at(step.use).content;
        if (step.slot < 0 || step.slot >= static_cast<int>(slots_.size())) {
            return "a slot that does not exist";
        }
        if (resident(content)) {
            return "a resident unit is gathered";
        }
        std::int64_t& latest = latest_[static_cast<std::size_t>(content.unit)];
        if (step.begins_step != (latest >= 0 && latest != content.optimizer_step)) {
            return "it is not the first gather of an updated unit that is said to be";
        }
        latest = content.optimizer_step;
        Content& victim = slots_[static_cast<std::size_t>(step.slot)];
        const std::string wrong =
            own_slots_ ? wrong_own_slot(victim, content) : wrong_victim(victim, step.use);
        victim = content;
        return wrong;
    }

    std::string wrong_own_slot(const Content& victim, const Content& content) const {
        if (victim.unit >= 0 && victim.unit != content.unit) {
            return "a unit is evicted that should stay for the optimizer step";
        }
        return victim.unit >= 0 && next_read(victim) < total()
                   ? "a slot is overwritten before its last use"
                   : "";
    }

    std::string wrong_victim(const Content& victim, std::int64_t use) const {
        if (victim.unit < 0) {
            return "";
        }
        if (std::find(slots_.begin(), slots_.end(), Content{}) != slots_.end()) {
            return "a unit is evicted although a slot is free";
        }
        if (next_read(victim) <= use) {
            return "a slot is overwritten whose unit is used in i .. k";
        }
        for (const Content& other : slots_) {
            if (next_read(other) > next_read(victim)) {
                return "a unit is evicted that is not used furthest ahead";
            }
        }
        return "";
    }

    std::string computed(const Step& step, const Schedule& schedule) {
        if (step.use != next_) {
            return "computes out of order";
        }
        const PlannedUse& now = at(next_);
        if (!now.needs_weights ? step.slot != -1
                               : step.slot < 0 || step.slot >= static_cast<int>(slots_.size()) ||
                                     slots_[static_cast<std::size_t>(step.slot)] != now.content) {
            return "a compute does not find its unit in its slot";
        }
        for (std::int64_t use = next_; use <= now.reach; ++use) {
            if (at(use).needs_weights && !resident(at(use).content)) {
                return "use " + std::to_string(use) + " was not gathered ahead";
            }
        }
        furthest_ = std::max(furthest_, now.reach);
        if (schedule.issued_ahead(next_) != std::min(now.reach, now.last_of_step) - next_ ||
            schedule.reach(next_) != std::min(furthest_, now.last_of_step)) {
            return "the schedule says another reach";
        }
        const bool begins =
            next_ > 0 && at(next_ - 1).content.optimizer_step != now.content.optimizer_step;
        const bool ends = next_ + 1 == total() ||
                          at(next_ + 1).content.optimizer_step != now.content.optimizer_step;
        if (step.begins_step != begins || schedule.ends_step(next_) != ends) {
            return "an optimizer step begins or ends elsewhere";
        }
        ++next_;
        return "";
    }

    std::vector<PlannedUse> uses_;
    std::vector<Content> slots_;
    std::vector<std::int64_t> latest_; // the optimizer step of each unit's latest gather
    bool own_slots_ = false;
    std::int64_t next_ = 0;
    std::int64_t last_gather_ = -1;
    std::int64_t furthest_ = -1;
};

std::vector<base::UnitId> gathered_units(const TrainingRun& run) {
    std::vector<base::UnitId> units;
    for (const Step& step : tests::steps_of(Schedule(run.plan()))) {
        if (step.kind == gather) {
            units.push_back(step.unit);
        }
    }
    return units;
}

} // namespace

TEST(TrainingLawTest, holds_for_all_runs_of_the_grid) {
    tests::for_each_training_run(12, [](const TrainingRun& run) {
        Schedule schedule(run.plan());
        ASSERT_EQ(schedule.slots(), run.slots()) << run.words();
        ASSERT_EQ(schedule.depth(Direction::forward), run.clamped(run.forward_depth));
        ASSERT_EQ(schedule.depth(Direction::backward), run.clamped(run.backward_depth));
        ASSERT_EQ(TrainingReplay(run).breach(schedule), "") << run.words();
    });
}

TEST(TrainingLawTest, the_turn_to_backward_gathers_fewer_units_by_those_still_there) {
    for (int units = 1; units <= 12; ++units) {
        for (int k = 0; k < 16; ++k) {
            const TrainingRun run{.units = units, .forward_depth = k % 4, .backward_depth = k / 4};
            // All but the embedding again, less those in slots.
            const int again = std::max(units - 1 - run.slots(), 0);
            EXPECT_EQ(static_cast<int>(gathered_units(run).size()), units + again) << run.words();
        }
    }
}

TEST(TrainingLawTest, backward_gathers_run_exactly_backward_depth_uses_ahead) {
    for (int depth = 0; depth <= 3; ++depth) {
        const TrainingRun run{.units = 12, .forward_depth = 1, .backward_depth = depth};
        std::int64_t reach = -1;
        int seen = 0;
        for (const Step& step : tests::steps_of(Schedule(run.plan()))) {
            if (step.kind == gather) {
                reach = step.use;
            } else if (step.direction == Direction::backward && reach > 12 && reach < 22) {
                // 12 .. 23 are backward; beyond 22 nothing is gathered: 23 needs no weights.
                ASSERT_EQ(reach - step.use, depth) << step.use;
                ++seen;
            }
        }
        EXPECT_GE(seen, 5) << depth;
    }
}

TEST(TrainingLawTest, nothing_is_gathered_for_the_embeddings_backward) {
    // Unit 0 is the embedding: gathered once a step although it is used twice, far apart.
    const auto units = gathered_units({.units = 8, .passes = 3});
    EXPECT_EQ(std::count(units.begin(), units.end(), 0), 3);
    EXPECT_EQ(std::count(units.begin(), units.end(), 3), 6);
}

TEST(TrainingLawTest, gathers_no_more_than_the_best_choice_of_slots_can) {
    tests::for_each_training_run(5, [](const TrainingRun& run) {
        if (run.passes > 3 || !run.reshard) {
            return;
        }
        std::vector<int> needs;
        std::vector<std::int64_t> issued_at;
        std::int64_t issuer = 0;
        for (std::int64_t use = 0; use < run.uses(); ++use) {
            while (run.reach_of(issuer) < use) {
                ++issuer;
            }
            issued_at.push_back(issuer);
            const auto id = run.unit_at(use) + run.units * run.optimizer_step(use);
            needs.push_back(run.needs_weights(use) ? static_cast<int>(id) : -1);
        }
        ASSERT_EQ(static_cast<std::int64_t>(gathered_units(run).size()),
                  tests::fewest_gathers(needs, issued_at, run.slots()))
            << run.words();
    });
}

TEST(TrainingLawTest, without_resharding_each_unit_is_gathered_once_per_optimizer_step) {
    tests::for_each_training_run(12, [](const TrainingRun& run) {
        if (run.reshard) {
            return;
        }
        std::vector<int> times(static_cast<std::size_t>(run.units));
        for (const base::UnitId unit : gathered_units(run)) {
            ++times[static_cast<std::size_t>(unit)];
        }
        const auto steps = (run.passes + run.accumulate - 1) / run.accumulate;
        ASSERT_EQ(std::count(times.begin(), times.end(), steps), run.units) << run.words();
    });
}

TEST(TrainingLawTest, without_resharding_backward_depth_changes_nothing) {
    TrainingRun shallow{.units = 7, .passes = 3, .accumulate = 2, .reshard = false};
    TrainingRun deep = shallow;
    shallow.backward_depth = 0;
    deep.backward_depth = 3;
    EXPECT_EQ(tests::steps_of(Schedule(shallow.plan())), tests::steps_of(Schedule(deep.plan())));
}

TEST(TrainingLawTest, the_steps_of_two_optimizer_steps_at_depth_one) {
    constexpr auto f = Direction::forward;
    constexpr auto b = Direction::backward;
    const std::vector<Step> expected = {
        {gather, 0, 0, 0, f, 0, false},   {gather, 1, 1, 1, f, 0, false},
        {compute, 0, 0, 0, f, 0, false},  {gather, 2, 2, 0, f, 0, false},
        {compute, 1, 1, 1, f, 0, false},  {compute, 2, 2, 0, f, 0, false},
        {compute, 3, 2, 0, b, 0, false},  {compute, 4, 1, 1, b, 0, false}, // all still there
        {gather, 6, 0, 0, f, 1, true}, // once the optimizer has updated unit 0
        {compute, 5, 0, -1, b, 0, false}, {gather, 7, 1, 1, f, 1, true},
        {compute, 6, 0, 0, f, 1, true},   {gather, 8, 2, 0, f, 1, true},
        {compute, 7, 1, 1, f, 1, false},  {compute, 8, 2, 0, f, 1, false},
        {compute, 9, 2, 0, b, 1, false},  {compute, 10, 1, 1, b, 1, false},
        {compute, 11, 0, -1, b, 1, false}};
    EXPECT_EQ(tests::steps_of(Schedule(TrainingRun{.units = 3, .passes = 2}.plan())), expected);
}
