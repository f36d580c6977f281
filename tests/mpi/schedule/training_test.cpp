// SPDX-License-Identifier: Apache-2.0
// Training runs end to end over MPI: every compute finds the weights of its own optimizer step,
// every optimizer the sum of the gradients of its passes, whatever the depths, the steps and the
// groups of ranks. Delays are in training_delays_test.cpp.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/comm/mpi_communicator.hpp>

#include "../../support/mpi_test.hpp"
#include "../../support/toy_groups.hpp"
#include "../../support/toy_training.hpp"

using namespace foregather;
using schedule::Direction;
using tests::ToyGroups;
using tests::ToyTraining;
using tests::ToyTrainingOptions;

namespace {

// Gathers that the segments' schedules name.
std::int64_t scheduled_gathers(const ToyTrainingOptions& options) {
    std::int64_t n = 0;
    for (const auto& ends : options.segments) {
        schedule::Plan plan = options.plan();
        plan.passes = ends.back();
        plan.step_ends = ends;
        schedule::Schedule schedule(plan);
        for (schedule::Step step; schedule.next(step);) {
            n += step.kind == schedule::Step::Kind::gather ? 1 : 0;
        }
    }
    return n;
}

void expect_right(ToyTraining& run, const ToyTrainingOptions& options) {
    const ToyTraining::Wrong& wrong = run.run();
    EXPECT_EQ(wrong.weights, 0);
    EXPECT_EQ(wrong.gradients, 0);
    EXPECT_EQ(wrong.slabs, 0);
    EXPECT_GT(wrong.computes, 0);
    EXPECT_EQ(run.allocated(), 0) << "while it ran";
    if (options.in_place) {
        return;
    }
    const std::int64_t gathers = scheduled_gathers(options);
    EXPECT_EQ(run.source().issued(), gathers);
    EXPECT_EQ(run.source().waited(), gathers);
    EXPECT_EQ(run.source().freed(), gathers);
    std::int64_t seen = 0;
    for (const Direction d : {Direction::forward, Direction::backward}) {
        const schedule::PrefetchFigures f = run.source().figures(d);
        EXPECT_FALSE(f.order_wrong) << f.reason;
        seen += f.gathers;
    }
    EXPECT_EQ(seen, gathers) << "each gather serves a use of one direction";
}

struct Case {
    const char* name;
    ToyTrainingOptions options;
};

std::vector<Case> cases() {
    std::vector<Case> all;
    const std::vector<std::vector<std::int64_t>> varying = {{2, 3, 6}};
    for (const bool reshard : {true, false}) {
        for (const int tied : {0, 2}) {
            for (int forward = 0; forward <= 2; ++forward) {
                for (int backward = 0; backward <= 2; ++backward) {
                    ToyTrainingOptions options;
                    options.units = 5;
                    options.tied = tied;
                    options.lookups = tied == 0 ? 1 : tied;
                    options.forward_depth = forward;
                    options.backward_depth = backward;
                    options.reshard = reshard;
                    options.segments = varying;
                    all.push_back({"", options});
                }
            }
        }
    }
    return all;
}

std::string words(const ToyTrainingOptions& o) {
    return "depths " + std::to_string(o.forward_depth) + " and " +
           std::to_string(o.backward_depth) + ", " + std::to_string(o.tied) + " tied, " +
           (o.reshard ? "resharded" : "kept");
}

} // namespace

TEST(TrainingTest, every_use_sees_its_own_steps_weights_and_every_optimizer_all_gradients) {
    const ToyGroups groups(tests::ranks());
    for (const Case& one : cases()) {
        SCOPED_TRACE(words(one.options));
        ToyTraining run(groups.all(), one.options);
        expect_right(run, one.options);
        EXPECT_EQ(run.source().slots(), schedule::Schedule(one.options.plan()).slots());
    }
}

TEST(TrainingTest, replicas_of_a_sharded_model_have_the_same_gradients) {
    if (tests::ranks() != 4) {
        GTEST_SKIP() << "needs 4 ranks";
    }
    const ToyGroups groups(2);
    for (const int tied : {0, 2}) {
        ToyTrainingOptions options;
        options.tied = tied;
        options.segments = {{1, 3}, {2}};
        ToyTraining run(groups.all(), options);
        expect_right(run, options);
        EXPECT_EQ(run.reducer().figures().replica_reductions, 3 * options.units)
            << "once for each unit and step";
    }
}

TEST(TrainingTest, one_rank_that_holds_all_adds_into_the_sum_and_replicas_share_it) {
    const ToyGroups groups(1);
    for (const bool in_place : {false, true}) {
        ToyTrainingOptions options;
        options.in_place = in_place;
        options.tied = 2;
        options.lookups = 2;
        options.segments = {{1, 3}, {1}};
        options.evaluation_passes = 2;
        ToyTraining run(groups.all(), options);
        expect_right(run, options);
        // Of 7 gradients of a pass those of 5 units begin a step: written where they stay.
        EXPECT_EQ(run.reducer().figures().reductions, 4 * 7 - 3 * 5);
        EXPECT_EQ(run.reducer().figures().replica_reductions, tests::ranks() > 1 ? 3 * 5 : 0);
        if (in_place) {
            EXPECT_EQ(run.told(), 3 * 5);
            EXPECT_EQ(run.asked(), 3 * 5 + 3 * 5)
                << "at each first use after an update, and of an evaluation";
        }
    }
}

TEST(TrainingTest, segments_with_an_evaluation_between_them_share_slots_stream_and_communicator) {
    const ToyGroups groups(tests::ranks());
    for (const bool staged : {false, true}) {
        ToyTrainingOptions options;
        options.staged = staged;
        options.evaluation_passes = 3;
        options.segments = {{1, 2}, {3}, {2, 3, 4}};
        options.backward_depth = 2;
        ToyTraining run(groups.all(), options);
        expect_right(run, options);
        EXPECT_EQ(run.passes(), 9);
        EXPECT_EQ(run.steps(), 6);
    }
}

TEST(TrainingTest, gradients_rounded_to_bf16_on_their_way_are_summed_in_fp32) {
    const ToyGroups groups(tests::ranks());
    ToyTrainingOptions options;
    options.reduced = base::DType::bf16;
    options.tied = 2;
    options.segments = {{2, 3}};
    ToyTraining run(groups.all(), options);
    expect_right(run, options);
}

TEST(TrainingTest, ranks_without_tokens_reduce_zeros) {
    const ToyGroups groups(tests::ranks());
    ToyTrainingOptions options;
    options.segments = {{2, 4}};
    options.has_tokens = [](int rank, std::int64_t pass) { return rank == 0 || pass == 0; };
    ToyTraining run(groups.all(), options);
    expect_right(run, options);
}

TEST(TrainingTest, parts_in_host_memory_come_up_only_after_they_are_updated) {
    const ToyGroups groups(tests::ranks());
    for (const bool reshard : {true, false}) {
        for (int depth = 0; depth <= 2; ++depth) {
            ToyTrainingOptions options;
            options.staged = true;
            options.reshard = reshard;
            options.forward_depth = depth;
            options.backward_depth = 2 - depth;
            options.segments = {{1, 3, 4}};
            SCOPED_TRACE(words(options));
            ToyTraining run(groups.all(), options);
            expect_right(run, options);
        }
    }
}

// Four units at depth 1: in two slots, units 3 and 2 are still there when backward begins.
TEST(TrainingTest, b3_backward_gathers_each_unit_ahead_and_nothing_that_is_there) {
    const ToyGroups groups(tests::ranks());
    ToyTrainingOptions options;
    options.units = 4;
    options.lookups = 0; // unit 0's backward reads its weights too
    options.segments = {{1}};
    options.compute_time = [] { return std::chrono::microseconds(500); };
    ToyTraining run(groups.all(), options);
    expect_right(run, options);
    std::vector<std::string> order; // as enqueued
    std::vector<schedule::Span> spans = run.source().spans();
    std::sort(spans.begin(), spans.end(),
              [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
    for (const schedule::Span& span : spans) {
        if (span.kind != schedule::SpanKind::wait && span.direction == Direction::backward) {
            order.push_back((span.kind == schedule::SpanKind::gather ? "gather " : "compute ") +
                            std::to_string(span.unit));
        }
    }
    const std::vector<std::string> expected = {"compute 3", "gather 1",  "compute 2",
                                               "gather 0",  "compute 1", "compute 0"};
    EXPECT_EQ(order, expected);
    const schedule::PrefetchFigures f = run.source().figures(Direction::backward);
    EXPECT_EQ(f.requested, 1);
    EXPECT_EQ(f.issued_ahead, 1);
    EXPECT_EQ(f.gathers, 2);
    EXPECT_EQ(f.ahead_gathers, 2);
    EXPECT_EQ(run.source().figures().gathers, 4);
}

TEST(TrainingTest, an_update_out_of_place_is_refused) {
    const ToyGroups groups(tests::ranks());
    ToyTrainingOptions options;
    ToyTraining run(groups.all(), options);
    const auto device = device::make_host_device(1);
    const auto stream = device->stream("compute", device::Priority::normal);
    EXPECT_THROW(run.source().updated(0, *stream), base::Error) << "before any pass";
    EXPECT_THROW(run.reducer().begin(0, *stream), base::Error) << "before any segment";
    expect_right(run, options);
    EXPECT_THROW(run.source().updated(0, *stream), base::Error) << "twice in a step";
    EXPECT_THROW(run.reducer().begin(0, *stream), base::Error) << "beyond the last pass";
}
