// SPDX-License-Identifier: Apache-2.0
// Beside the order of a training run: where gradients go, what the witness makes of the order, the
// words of it, and what a plan is refused for.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/schedule/schedule.hpp>
#include <foregather/schedule/witness.hpp>

#include "records.hpp"
#include "training_chain.hpp"

using namespace foregather;
using schedule::Direction;
using schedule::Gradient;
using schedule::Plan;
using schedule::Schedule;
using schedule::Step;
using schedule::Use;
using tests::figures_of;
using tests::TrainingRun;

namespace {

constexpr auto gather = Step::Kind::gather;

// Records of the uses of a run whose steps were enqueued one after another, without times: gathers
// for the next optimizer step when this one is over.
std::vector<schedule::UseRecord> records_of(const TrainingRun& run) {
    Schedule schedule(run.plan());
    std::vector<schedule::UseRecord> records(static_cast<std::size_t>(schedule.uses()));
    std::vector<std::int64_t> brought(static_cast<std::size_t>(schedule.slots()));
    std::int64_t sequence = 1;
    std::vector<Step> held;
    const auto enqueue = [&](const Step& step) {
        records[static_cast<std::size_t>(step.use)].gathered = true;
        brought[static_cast<std::size_t>(step.slot)] = sequence++;
    };
    std::int64_t optimizer_step = 0;
    for (const Step& step : tests::steps_of(schedule)) {
        if (step.kind == gather && step.optimizer_step > optimizer_step) {
            held.push_back(step);
            continue;
        }
        if (step.kind == gather) {
            enqueue(step);
            continue;
        }
        if (schedule.ends_step(step.use)) {
            ++optimizer_step;
        }
        schedule::UseRecord& r = records[static_cast<std::size_t>(step.use)];
        r.use = step.use;
        r.unit = step.unit;
        r.direction = step.direction;
        r.slot = step.slot;
        r.gather_sequence = step.slot < 0 ? 0 : brought[static_cast<std::size_t>(step.slot)];
        r.compute_sequence = sequence++;
        r.must_ahead = schedule.issued_ahead(step.use);
        r.may_ahead = schedule.reach(step.use) - step.use;
        if (schedule.ends_step(step.use)) {
            std::for_each(held.begin(), held.end(), enqueue);
            held.clear();
        }
    }
    return records;
}

// The same records with the gather of one use and the compute of another in each other's place.
std::vector<schedule::UseRecord> swapped(std::vector<schedule::UseRecord> records,
                                         std::size_t gathered, std::size_t computed) {
    const std::int64_t gather_at = records[gathered].gather_sequence;
    const std::int64_t compute_at = records[computed].compute_sequence;
    for (auto& record : records) {
        if (record.gather_sequence == gather_at) {
            record.gather_sequence = compute_at;
        }
    }
    records[computed].compute_sequence = gather_at;
    return records;
}

schedule::Witness witness_of(const std::vector<schedule::UseRecord>& records,
                             const TrainingRun& run) {
    return tests::witness_of(records,
                             {run.clamped(run.forward_depth), run.clamped(run.backward_depth)});
}

bool order_wrong(const std::vector<schedule::UseRecord>& records, const TrainingRun& run) {
    const schedule::Witness witness = witness_of(records, run);
    return witness.figures(Direction::forward).order_wrong ||
           witness.figures(Direction::backward).order_wrong;
}

} // namespace

TEST(TrainingPassTest, is_forward_and_then_the_same_backward) {
    constexpr auto f = Direction::forward;
    constexpr auto b = Direction::backward;
    // Two embedding pieces, one layer, a tied head: its pieces are read in backward, the
    // embedding's are not.
    const std::vector<Use> expected = {{0, true, f},  {1, true, f}, {2, true, f}, {1, true, f},
                                       {0, true, f},  {0, true, b}, {1, true, b}, {2, true, b},
                                       {1, false, b}, {0, false, b}};
    EXPECT_EQ(schedule::training_pass({0, 1, 2, 1, 0}, 2), expected);
}

TEST(GradientTest, slots_take_turns_and_each_units_is_begun_and_completed_once_per_step) {
    tests::for_each_training_run(6, [](const TrainingRun& run) {
        const Schedule schedule(run.plan());
        std::int64_t turn = 0;
        std::vector<std::int64_t> latest(static_cast<std::size_t>(run.units), -1);
        std::vector<std::int64_t> last; // by unit and optimizer step: its last backward use
        const auto key = [&run](std::int64_t use) {
            return static_cast<std::size_t>(run.optimizer_step(use) * run.units + run.unit_at(use));
        };
        for (std::int64_t use = 0; use < run.uses(); ++use) {
            last.resize(std::max(last.size(), key(use) + 1));
            last[key(use)] = use;
        }
        for (std::int64_t use = 0; use < run.uses(); ++use) {
            Gradient expected;
            if (run.is_backward(use)) {
                auto& before = latest[static_cast<std::size_t>(run.unit_at(use))];
                expected = {static_cast<int>(turn++ % 2), before != run.optimizer_step(use),
                            last[key(use)] == use};
                before = run.optimizer_step(use);
            }
            ASSERT_EQ(schedule.gradient_of(use), expected) << run.words() << ", use " << use;
        }
    });
}

TEST(GradientTest, a_tied_unit_is_complete_after_the_embeddings_backward_of_the_last_pass) {
    // Uses of a pass: 0 1 0 forward, 0 1 0 backward; two passes are one optimizer step.
    const Schedule schedule(
        TrainingRun{.units = 2, .tied = true, .passes = 2, .accumulate = 2}.plan());
    EXPECT_EQ(schedule.gradient_of(2), (Gradient{-1, false, false}));
    EXPECT_EQ(schedule.gradient_of(3), (Gradient{0, true, false})) << "the head's part";
    EXPECT_EQ(schedule.gradient_of(4), (Gradient{1, true, false}));
    EXPECT_EQ(schedule.gradient_of(5), (Gradient{0, false, false})) << "another pass follows";
    EXPECT_EQ(schedule.gradient_of(9), (Gradient{1, false, false})) << "turns go on";
    EXPECT_EQ(schedule.gradient_of(10), (Gradient{0, false, true}));
    EXPECT_EQ(schedule.gradient_of(11), (Gradient{1, false, true}));
}

TEST(GradientTest, a_last_step_of_fewer_passes_is_completed_by_its_last_pass) {
    const Schedule schedule(TrainingRun{.units = 1, .passes = 3, .accumulate = 2}.plan());
    EXPECT_EQ(schedule.gradient_of(1), (Gradient{0, true, false}));
    EXPECT_EQ(schedule.gradient_of(3), (Gradient{1, false, true}));
    EXPECT_EQ(schedule.gradient_of(5), (Gradient{0, true, true}));
}

TEST(TrainingWitnessTest, finds_the_order_of_every_run_of_the_grid_right) {
    tests::for_each_training_run(6, [](const TrainingRun& run) {
        const schedule::Witness witness = witness_of(records_of(run), run);
        for (const Direction d : {Direction::forward, Direction::backward}) {
            const auto f = witness.figures(d);
            ASSERT_FALSE(f.order_wrong) << f.reason << ": " << run.words();
            ASSERT_TRUE(f.issued_ahead == f.requested || run.units < 6) << run.words();
        }
    });
}

TEST(TrainingWitnessTest, a_gather_after_its_turn_or_before_it_is_wrong) {
    const TrainingRun run{.units = 8, .passes = 2, .accumulate = 2, .forward_depth = 2};
    const auto right = records_of(run);
    ASSERT_FALSE(order_wrong(right, run));
    int tried = 0;
    for (std::size_t use = 3; use < right.size(); ++use) {
        std::int64_t issuer = 0; // the use whose compute this gather comes just before
        while (run.reach_of(issuer) < right[use].use) {
            ++issuer;
        }
        if (right[use].gathered && issuer < right[use].use) {
            const auto at = static_cast<std::size_t>(issuer);
            EXPECT_TRUE(order_wrong(swapped(right, use, at), run)) << "late, use " << use;
            EXPECT_TRUE(order_wrong(swapped(right, use, at - 1), run)) << "early, use " << use;
            ++tried;
        }
    }
    EXPECT_GT(tried, 15);
}

TEST(TrainingWitnessTest, a_gather_for_the_next_step_before_the_optimizer_is_wrong) {
    const TrainingRun run{.units = 8, .passes = 2};
    const auto right = records_of(run);
    EXPECT_FALSE(order_wrong(right, run));
    EXPECT_TRUE(order_wrong(swapped(right, 16, 15), run)) << "before the compute of use 15";
}

TEST(TrainingWitnessTest, a_use_that_need_not_gather_ahead_is_not_judged_for_what_began) {
    auto records = tests::PlannedRun{.depth = 1, .n = 20}.records();
    for (std::size_t i = 0; i + 1 < records.size(); i += 2) {
        records[i].must_ahead = 0;
        std::swap(records[i + 1].gather_sequence, records[i].compute_sequence);
        records[i + 1].gather_issued = records[i + 1].gather_begin = records[i].compute_end;
    }
    const auto f = figures_of(records, 1);
    EXPECT_EQ(f.judged, 9);
    EXPECT_EQ(f.begun_share, 1);
    EXPECT_EQ(f.issued_ahead, 1);
    EXPECT_EQ(f.verdict, schedule::Verdict::observed) << f.reason;
}

TEST(TrainingScheduleTest, describes_its_steps_in_words) {
    const TrainingRun run{.units = 2, .passes = 2, .forward_depth = 0, .backward_depth = 0};
    EXPECT_EQ(describe(Schedule(run.plan()), {"embed.0", "layer.0"}, 8),
              "  gather  use 0  embed.0 -> slot 0\n"
              "  compute use 0  embed.0 in slot 0\n"
              "  gather  use 1  layer.0 -> slot 0\n"
              "  compute use 1  layer.0 in slot 0\n"
              "  compute use 2  layer.0 backward in slot 0, gradient slot 0, complete\n"
              "  compute use 3  embed.0 backward, gradient slot 1, complete\n"
              "  gather  use 4  embed.0 -> slot 0, once updated\n"
              "  compute use 4  embed.0 in slot 0, begins step 2\n"
              "  ...\n");
}

TEST(TrainingScheduleTest, a_depth_of_a_direction_without_uses_takes_no_slot) {
    Plan plan;
    plan.pass = {{0}, {1}, {2}, {3}};
    plan.passes = 1;
    plan.backward_depth = 3;
    EXPECT_EQ(Schedule(plan).slots(), 2);
    EXPECT_EQ(Schedule(plan).depth(Direction::backward), 0);
}

TEST(TrainingScheduleTest, units_that_no_use_needs_the_weights_of_have_no_slot) {
    Plan plan;
    plan.pass = {{0, false}, {1}, {2}};
    plan.passes = 2;
    plan.forward_depth = 2;
    EXPECT_EQ(Schedule(plan).depth(), 1) << "of units that are gathered";
    plan.reshard_after_forward = false;
    EXPECT_EQ(Schedule(plan).slots(), 2);
}

TEST(TrainingScheduleTest, refuses_ends_of_steps_that_do_not_ascend_to_the_last_pass) {
    Plan plan;
    plan.pass = {{0}};
    plan.passes = 4;
    using Ends = std::vector<std::int64_t>;
    for (const Ends& wrong : {Ends{0, 4}, Ends{2, 2, 4}, Ends{3, 1, 4}, Ends{2}, Ends{2, 5}}) {
        plan.step_ends = wrong;
        EXPECT_THROW(Schedule{plan}, base::Error);
    }
    plan.step_ends = {1, 4};
    EXPECT_NO_THROW(Schedule{plan});
}

TEST(TrainingScheduleTest, steps_of_varying_numbers_of_passes_begin_and_end_where_it_is_said) {
    TrainingRun run{.units = 3, .passes = 6};
    Plan plan = run.plan();
    plan.step_ends = {1, 4, 6};
    Schedule schedule(plan);
    std::vector<std::int64_t> begins;
    std::vector<std::int64_t> updated;
    for (Step step; schedule.next(step);) {
        if (step.kind == gather) {
            if (step.begins_step) {
                updated.push_back(step.optimizer_step * 10 + step.unit);
            }
        } else if (step.begins_step) {
            begins.push_back(step.use);
        }
    }
    EXPECT_EQ(begins, (std::vector<std::int64_t>{6, 24}));
    EXPECT_EQ(updated, (std::vector<std::int64_t>{10, 11, 12, 20, 21, 22}));
    for (std::int64_t use = 0; use < 36; ++use) {
        EXPECT_EQ(schedule.optimizer_step_of(use), use < 6 ? 0 : use < 24 ? 1 : 2);
        EXPECT_EQ(schedule.ends_step(use), use == 5 || use == 23 || use == 35);
        EXPECT_EQ(schedule.gradient_of(use).completes,
                  use % 6 > 2 && (use / 6 == 0 || use / 6 == 3 || use / 6 == 5));
    }
}

TEST(TrainingScheduleTest, nothing_is_said_to_be_issued_ahead_beyond_the_optimizer_step) {
    TrainingRun run{.units = 4, .passes = 3, .forward_depth = 2, .backward_depth = 3};
    Plan plan = run.plan();
    plan.step_ends = {2, 3};
    const Schedule schedule(plan); // 8 uses a pass
    EXPECT_EQ(schedule.issued_ahead(7), 3) << "into the next pass of the same step";
    EXPECT_EQ(schedule.issued_ahead(12), 3);
    EXPECT_EQ(schedule.issued_ahead(14), 1);
    EXPECT_EQ(schedule.issued_ahead(15), 0);
    EXPECT_EQ(schedule.reach(15), 15);
    EXPECT_EQ(schedule.issued_ahead(16), 2);
    EXPECT_EQ(schedule.reach(16), 18) << "of the uses before, held back until the optimizer";
}
