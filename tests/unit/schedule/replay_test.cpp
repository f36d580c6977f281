// SPDX-License-Identifier: Apache-2.0
// What a schedule takes in time, against sums by hand; that a replay keeps to the schedule's order
// and to its slots; and what must hold whatever the times.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/schedule/replay.hpp>

#include "training_chain.hpp"

using namespace foregather;
using schedule::Contention;
using schedule::Direction;
using schedule::PassTimes;
using schedule::Plan;
using schedule::replay;
using schedule::Replayed;
using schedule::Span;
using schedule::SpanKind;
using tests::TrainingRun;

namespace {

constexpr double near = 1e-7; // s: the clock of the figures ticks in ns

// Of a pass with so many uses of so many units, all alike.
PassTimes alike(std::size_t uses, std::size_t units, double compute, double gather) {
    PassTimes times;
    times.compute.assign(uses, compute);
    times.gather.assign(units, gather);
    return times;
}

PassTimes training_times(const TrainingRun& run, double compute, double gather, double reduce,
                         double optimizer) {
    const auto units = static_cast<std::size_t>(run.units);
    PassTimes times = alike(static_cast<std::size_t>(run.per_pass()), units, compute, gather);
    times.reduce.assign(units, reduce);
    times.replica.assign(units, 0);
    times.optimizer.assign(units, optimizer);
    return times;
}

Plan forward(int units, int depth) {
    return schedule::forward_plan(tests::untied(units), 1, depth);
}

double sum(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

std::vector<Span> of_kind(const std::vector<Span>& spans, SpanKind kind) {
    std::vector<Span> some;
    std::copy_if(spans.begin(), spans.end(), std::back_inserter(some),
                 [kind](const Span& span) { return span.kind == kind; });
    return some;
}

PassTimes random_times(std::mt19937& random, const TrainingRun& run) {
    std::uniform_real_distribution<double> some(0, 1);
    const auto draw = [&](std::int64_t n) {
        std::vector<double> values(static_cast<std::size_t>(n));
        std::generate(values.begin(), values.end(), [&] { return some(random); });
        return values;
    };
    return {draw(run.per_pass()), draw(run.units), draw(run.units),
            draw(run.units),      draw(run.units), some(random)};
}

// One segment of work at a time on a stream.
void expect_one_at_a_time(std::vector<Span> spans, const std::string& what) {
    std::sort(spans.begin(), spans.end(),
              [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
    for (std::size_t i = 1; i < spans.size(); ++i) {
        ASSERT_GE(spans[i].begin_ns, spans[i - 1].end_ns) << what << ", span " << i;
    }
}

} // namespace

TEST(ReplayTest, at_depth_0_a_pass_is_the_sum_of_gathers_and_computes) {
    const Replayed r = replay(forward(5, 0), alike(5, 5, 2.0, 3.0));
    EXPECT_NEAR(r.step, 25, near);
    EXPECT_NEAR(r.of(Direction::forward).exposed, 15, near);
    EXPECT_NEAR(r.of(Direction::forward).overlapped, 0, near);
    EXPECT_NEAR(r.of(Direction::forward).gather, 15, near);
    EXPECT_NEAR(r.of(Direction::forward).compute, 10, near);
    EXPECT_NEAR(r.exposed(), 15, near);
}

TEST(ReplayTest, at_depth_1_shorter_gathers_are_hidden_behind_computes) {
    const Replayed r = replay(forward(5, 1), alike(5, 5, 3.0, 2.0));
    EXPECT_NEAR(r.step, 15, near);
    EXPECT_NEAR(r.exposed(), 0, near);
    EXPECT_NEAR(r.of(Direction::forward).overlapped, 10, near);
}

// The gather of use i + 1 begins with compute i, which freed the slot before.
TEST(ReplayTest, at_depth_1_longer_gathers_are_the_bound) {
    const Replayed r = replay(forward(5, 1), alike(5, 5, 2.0, 3.0));
    EXPECT_NEAR(r.step, 15, near);
    EXPECT_NEAR(r.exposed(), 5, near);
    EXPECT_NEAR(r.of(Direction::forward).overlapped, 10, near);
}

// Units 0 and 1 compute 1 s, 2 and 3 compute 5 s; each gather takes 3 s. At depth 1 gathers 1, 2
// and those of the long computes follow each other in pairs: 3 + 3 + 5 + 5. At depth 2 the bound is
// that unit 2 is gathered when unit 3 has left its slot: 5 + 3 + 5. At depth 3 all units stay.
TEST(ReplayTest, a_deeper_prefetch_evens_out_bursts) {
    PassTimes times = alike(4, 4, 0, 3.0);
    times.compute = {1, 1, 5, 5};
    EXPECT_NEAR(replay(forward(4, 0), times).step, 24, near);
    EXPECT_NEAR(replay(forward(4, 1), times).step, 16, near);
    EXPECT_NEAR(replay(forward(4, 2), times).step, 13, near);
    EXPECT_NEAR(replay(forward(4, 3), times).step, 12, near);
}

// Together 1 s of gather needs 1.5 s, in which compute gets 1.5 / 1.25 done; the rest runs alone.
TEST(ReplayTest, work_beside_other_work_is_slowed_by_its_share) {
    const Replayed r = replay(forward(5, 1), alike(5, 5, 3.0, 1.0), Contention{0.25, 0.5});
    EXPECT_NEAR(r.of(Direction::forward).gather, 5 * 1.5, near);
    EXPECT_NEAR(r.of(Direction::forward).compute, 5 * (1.5 + 3.0 - 1.5 / 1.25), near);
    EXPECT_NEAR(r.step, 5 * 3.3, near);
    const Replayed serial = replay(forward(5, 0), alike(5, 5, 3.0, 1.0), Contention{0.25, 0.5});
    EXPECT_NEAR(serial.step, 20, near) << "nothing is beside anything";
}

// One layer between embedding and head. With two gradient slots the third backward waits for the
// first reduction, the optimizer for the last.
TEST(ReplayTest, backward_waits_for_a_gradient_slot_and_the_optimizer_for_all) {
    TrainingRun run;
    run.units = 3;
    const PassTimes times = training_times(run, 1.0, 0.0, 4.0, 0.5);
    const Replayed r = replay(run.plan(), times);
    // forward 3; backward of 2 ends at 4 and is reduced until 8; that of 1 at 5, reduced until 12;
    // that of 0 waits from 5 to 8, ends at 9 and is reduced until 16.
    EXPECT_NEAR(r.step, 16 + 1.5, near);
    EXPECT_NEAR(r.exposed_reduce, 3 + 7, near);
    EXPECT_NEAR(r.reduce, 12, near);
    EXPECT_NEAR(r.optimizer, 1.5, near);
    EXPECT_NEAR(r.of(Direction::backward).compute, 3 + 3, near) << "as the executor's clock has it";
}

TEST(ReplayTest, replicas_sums_run_once_a_step_behind_the_last_reduction) {
    TrainingRun run;
    run.units = 2;
    run.accumulate = run.passes = 3;
    PassTimes times = training_times(run, 1.0, 0.0, 0.5, 0.0);
    const double without = replay(run.plan(), times).step;
    times.replica = {2.0, 0.0};
    EXPECT_NEAR(without, 12.5, near);
    EXPECT_NEAR(replay(run.plan(), times).step, 14.5, near);
}

// Forward, backward, reductions hidden, `between`, updates; the gather of unit 0 begins when it has
// been updated, that of 1 behind it.
TEST(ReplayTest, gathers_of_the_next_step_wait_for_the_update_of_their_unit) {
    TrainingRun run;
    run.units = 2;
    PassTimes times = training_times(run, 1.0, 3.0, 0.0, 1.0);
    times.between = 2.0;
    const Replayed r = replay(run.plan(), times, {}, true);
    // Of a step: from the update of 0, the gather of 0 takes 3, 1 of it behind the update of 1;
    // gather of 1: 3, beside compute 0; compute 1; backward of 1, of 0; between; updates.
    EXPECT_NEAR(r.step, 2 + 3 + 1 + 1 + 1 + 2 + 2, near);
    EXPECT_NEAR(r.of(Direction::forward).exposed, 2 + 2, near);
    const auto gathers = of_kind(r.spans, SpanKind::gather);
    ASSERT_GE(gathers.size(), 4U);
    EXPECT_EQ(gathers[2].begin_ns - gathers[0].begin_ns, 12'000'000'000)
        << "in the first step nothing waits for an update: 3 + 3 + 1 + 1 + 1 + 2 + 1";
}

TEST(ReplayTest, what_is_between_is_idle_and_gathers_go_on_in_it) {
    PassTimes times = alike(3, 3, 1.0, 1.0);
    times.between = 0.5;
    EXPECT_NEAR(replay(forward(3, 0), times).step, 6, near) << "half of the first gather";
    EXPECT_NEAR(replay(forward(3, 1), times).step, 3.5, near);
    TrainingRun run;
    run.units = 3;
    run.accumulate = run.passes = 2;
    PassTimes training = training_times(run, 1.0, 0.0, 0.0, 1.0);
    training.between = 0.5;
    EXPECT_NEAR(replay(run.plan(), training).step, 12 + 3 + 0.5, near) << "once a step";
}

TEST(ReplayTest, kept_weights_are_gathered_once_a_step) {
    TrainingRun run;
    run.units = 4;
    run.accumulate = run.passes = 3;
    run.reshard = false;
    run.forward_depth = 1;
    const Replayed r = replay(run.plan(), training_times(run, 1.0, 0.25, 0.0, 0.0));
    EXPECT_NEAR(r.of(Direction::forward).gather, 1.0, near);
    EXPECT_NEAR(r.of(Direction::backward).gather, 0, near);
    EXPECT_NEAR(r.step, 24 + 0.25, near) << "the first gather alone is exposed";
}

TEST(ReplayTest, without_gathers_a_step_is_the_sum_of_its_computes) {
    std::mt19937 random(3);
    tests::for_each_training_run(4, [&](const TrainingRun& run) {
        if (run.passes % run.accumulate != 0) {
            return;
        }
        PassTimes times = random_times(random, run);
        times.gather.assign(times.gather.size(), 0);
        times.reduce.clear();
        times.replica.clear();
        Plan plan = run.plan();
        const auto passes = static_cast<double>(run.accumulate);
        ASSERT_NEAR(replay(plan, times, {0.5, 0.5}).step,
                    passes * sum(times.compute) + sum(times.optimizer) + times.between, near)
            << run.words();
        ASSERT_NEAR(replay(plan, times).exposed(), 0, near) << run.words();
    });
}

TEST(ReplayTest, a_deeper_prefetch_never_takes_longer_without_contention) {
    std::mt19937 random(5);
    for (int trial = 0; trial < 300; ++trial) {
        TrainingRun run;
        run.units = 3 + trial % 6;
        run.accumulate = run.passes = 1 + trial % 3;
        const PassTimes times = random_times(random, run);
        double before = std::numeric_limits<double>::infinity();
        for (int depth = 0; depth < run.units; ++depth) {
            run.forward_depth = run.backward_depth = depth;
            const double step = replay(run.plan(), times).step;
            ASSERT_LE(step, before + near) << run.words() << ", trial " << trial;
            before = step;
        }
    }
}

TEST(ReplayTest, no_step_is_shorter_than_its_computes_or_its_gathers) {
    std::mt19937 random(7);
    for (int trial = 0; trial < 300; ++trial) {
        TrainingRun run;
        run.units = 3 + trial % 6;
        run.forward_depth = trial % 4;
        run.backward_depth = trial / 4 % 4;
        const PassTimes times = random_times(random, run);
        const Replayed r = replay(run.plan(), times, {0.3, 0.2});
        EXPECT_GE(r.step + near, sum(times.compute) + sum(times.optimizer) + times.between);
        EXPECT_GE(r.step + near, r.directions[0].gather + r.directions[1].gather);
        EXPECT_GE(r.step + near, r.reduce);
    }
}

TEST(ReplayTest, compute_is_idle_for_what_is_exposed_and_what_is_between_alone) {
    std::mt19937 random(9);
    for (int trial = 0; trial < 300; ++trial) {
        TrainingRun run;
        run.units = 3 + trial % 6;
        run.forward_depth = trial % 4;
        run.backward_depth = trial / 4 % 4;
        PassTimes times = random_times(random, run);
        times.reduce.clear();
        times.replica.clear();
        const Replayed r = replay(run.plan(), times, {0.3, 0.2});
        EXPECT_NEAR(r.step,
                    r.directions[0].compute + r.directions[1].compute + r.optimizer +
                        times.between + r.exposed(),
                    near);
    }
}

// Each stream does one thing at a time; a gather is over before its compute begins, and begins when
// the computes are over that its slot was used for.
TEST(ReplayTest, spans_keep_to_streams_and_slots) {
    std::mt19937 random(11);
    tests::for_each_training_run(4, [&](const TrainingRun& run) {
        if (run.passes != run.accumulate || run.pieces > 2) {
            return;
        }
        const Replayed r = replay(run.plan(), random_times(random, run), {0.4, 0.7}, true);
        auto computes = of_kind(r.spans, SpanKind::compute);
        const auto gathers = of_kind(r.spans, SpanKind::gather);
        expect_one_at_a_time(computes, run.words());
        expect_one_at_a_time(gathers, run.words());
        expect_one_at_a_time(of_kind(r.spans, SpanKind::reduce), run.words());
        for (const Span& gather : gathers) {
            for (const Span& compute : computes) {
                if (compute.slot != gather.slot || compute.slot < 0) {
                    continue;
                }
                const bool before = compute.sequence < gather.sequence;
                ASSERT_TRUE(before ? compute.end_ns <= gather.begin_ns
                                   : compute.begin_ns >= gather.end_ns)
                    << run.words() << ": slot " << gather.slot;
            }
        }
    });
}

// What is enqueued is what the schedule yields; but gathers that wait for the optimizer come when
// all computes of the step before have.
TEST(ReplayTest, spans_come_in_the_order_of_the_schedule) {
    std::mt19937 random(13);
    tests::for_each_training_run(4, [&](const TrainingRun& one) {
        if (one.passes != one.accumulate || one.pieces > 2) {
            return;
        }
        TrainingRun run = one;
        auto spans = replay(run.plan(), random_times(random, run), {}, true).spans;
        run.passes *= 3; // so many steps a replay plays
        std::vector<std::pair<bool, base::UnitId>> due, seen, held;
        std::int64_t computed = 0;
        for (const schedule::Step& step : tests::steps_of(schedule::Schedule(run.plan()))) {
            const bool gather = step.kind == schedule::Step::Kind::gather;
            const bool early =
                gather && run.optimizer_step(step.use) > run.optimizer_step(computed);
            (early ? held : due).push_back({gather, step.unit});
            computed += gather ? 0 : 1;
            if (!gather && computed % (run.per_pass() * run.accumulate) == 0) {
                due.insert(due.end(), held.begin(), held.end());
                held.clear();
            }
        }
        spans.erase(std::remove_if(spans.begin(), spans.end(),
                                   [](const Span& span) {
                                       return span.kind != SpanKind::gather &&
                                              span.kind != SpanKind::compute;
                                   }),
                    spans.end());
        std::stable_sort(spans.begin(), spans.end(),
                         [](const Span& a, const Span& b) { return a.sequence < b.sequence; });
        for (const Span& span : spans) {
            seen.push_back({span.kind == SpanKind::gather, span.unit});
        }
        ASSERT_EQ(seen, due) << run.words();
    });
}

TEST(ReplayTest, times_that_do_not_fit_are_refused) {
    const Plan plan = forward(3, 1);
    EXPECT_THROW(replay(plan, alike(2, 3, 1, 1)), base::Error);
    EXPECT_THROW(replay(plan, alike(3, 2, 1, 1)), base::Error);
    EXPECT_THROW(replay(plan, alike(3, 3, -1, 1)), base::Error);
    EXPECT_THROW(replay(plan, alike(3, 3, 1, std::nan(""))), base::Error);
    EXPECT_THROW(replay(plan, alike(3, 3, 1, 1), Contention{-1, 0}), base::Error);
    EXPECT_THROW(replay(schedule::forward_plan({}, 1, 1), PassTimes{}), base::Error);
    EXPECT_THROW(replay(schedule::forward_plan({0}, 0, 1), alike(1, 1, 1, 1)), base::Error);
}

// 80 layers and 20 pieces, 8 passes a step.
TEST(ReplayTest, a_large_training_step_is_replayed_in_a_moment) {
    TrainingRun run;
    run.units = 100;
    run.pieces = 10;
    run.accumulate = run.passes = 8;
    const PassTimes times = training_times(run, 0.01, 0.004, 0.006, 0.001);
    const auto begin = std::chrono::steady_clock::now();
    const Replayed r = replay(run.plan(), times, {0.1, 0.1});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_GT(r.step, 8 * 200 * 0.01);
    EXPECT_LT(took.count(), 0.5) << "milliseconds where the machine is idle";
    RecordProperty("ms", static_cast<int>(took.count() * 1e3));
}
