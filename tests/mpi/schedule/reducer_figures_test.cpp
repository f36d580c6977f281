// SPDX-License-Identifier: Apache-2.0
// What a training run tells of its reductions and of compute that waited: counts, bytes, and
// intervals that other records of the same run bear out.
#include <algorithm>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>

#include "../../support/delayed_communicator.hpp"
#include "../../support/mpi_test.hpp"
#include "../../support/toy_groups.hpp"
#include "../../support/toy_training.hpp"

using namespace foregather;
using namespace std::chrono_literals;
using schedule::Span;
using schedule::SpanKind;
using tests::ToyGroups;
using tests::ToyTraining;
using tests::ToyTrainingOptions;

namespace {

std::vector<Span> of_kind(std::vector<Span> spans, SpanKind kind) {
    std::erase_if(spans, [kind](const Span& span) { return span.kind != kind; });
    return spans;
}

} // namespace

TEST(ReducerFiguresTest, every_gradient_is_a_reduction_with_its_bytes_and_its_span) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const ToyGroups groups(tests::ranks());
    for (const base::DType type : {base::DType::f32, base::DType::bf16}) {
        ToyTrainingOptions options;
        options.units = 4;
        options.tied = 1;
        options.reduced = type;
        options.segments = {{2, 3}, {1}};
        const base::Bytes before = groups.reduce->bytes_received();
        ToyTraining run(groups.all(), options);
        run.run();
        const shard::ArenaPlan plan(tests::toy_model(4, 1, options.elements).units, tests::ranks());
        std::int64_t received = 0; // of a pass: units 0 twice, 1, 2, 3
        for (const int unit : {0, 0, 1, 2, 3}) {
            const auto& layout = plan.units[static_cast<std::size_t>(unit)].layout;
            received += base::bytes_of(layout.padded() - layout.per_rank(), type).count;
        }
        const schedule::ReduceFigures f = run.reducer().figures();
        EXPECT_EQ(f.reductions, 4 * 5);
        EXPECT_EQ(f.replica_reductions, 0);
        EXPECT_EQ(f.received.count, 4 * received);
        EXPECT_EQ(groups.reduce->bytes_received() - before, f.received)
            << "as the communicator counts it";
        const auto spans = of_kind(run.reducer().spans(), SpanKind::reduce);
        ASSERT_EQ(std::ssize(spans), 4 * 5);
        double busy_s = 0;
        for (std::size_t i = 0; i < spans.size(); ++i) {
            EXPECT_EQ(spans[i].pass, static_cast<std::int64_t>(i) / 5);
            EXPECT_EQ(spans[i].direction, schedule::Direction::backward);
            EXPECT_LE(spans[i].issued_ns, spans[i].begin_ns);
            busy_s += static_cast<double>(spans[i].end_ns - spans[i].begin_ns) * 1e-9;
        }
        EXPECT_NEAR(f.reduce_s, busy_s, 1e-9);
        EXPECT_EQ(f.overlapped_s, std::max(f.reduce_s - f.exposed_s, 0.0));
    }
}

TEST(ReducerFiguresTest, compute_waits_for_slots_only_while_their_reductions_run) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const ToyGroups groups(tests::ranks());
    tests::DelayedCommunicator slow(*groups.reduce, 1, 2ms);
    ToyTrainingOptions options;
    options.segments = {{2, 4}};
    ToyTraining run({*groups.gather, &slow, nullptr}, options);
    run.run();
    const schedule::ReduceFigures f = run.reducer().figures();
    EXPECT_GT(f.exposed_waits, 4) << "computes of no length wait for every slot";
    EXPECT_GT(f.exposed_s, 0);
    EXPECT_LE(f.exposed_s, f.reduce_s);
    const auto reductions = of_kind(run.reducer().spans(), SpanKind::reduce);
    const auto waits = of_kind(run.reducer().spans(), SpanKind::wait);
    ASSERT_EQ(std::ssize(waits), f.exposed_waits);
    double waited_s = 0;
    for (const Span& wait : waits) {
        waited_s += static_cast<double>(wait.end_ns - wait.begin_ns) * 1e-9;
        EXPECT_LE(wait.issued_ns, wait.begin_ns);
        EXPECT_TRUE(std::any_of(reductions.begin(), reductions.end(), [&](const Span& reduction) {
            return reduction.begin_ns <= wait.end_ns && reduction.end_ns >= wait.begin_ns;
        }));
    }
    EXPECT_NEAR(f.exposed_s, waited_s, 1e-9);
}

TEST(ReducerFiguresTest, compute_that_runs_the_optimizer_does_not_wait_for_a_gather) {
    const ToyGroups groups(tests::ranks());
    ToyTrainingOptions options;
    options.segments = {{1, 2, 4}};
    options.compute_time = [] { return 1ms; }; // optimizers take as long
    ToyTraining run(groups.all(), options);
    run.run();
    ASSERT_EQ(std::ssize(run.optimizers()), 3 * 5);
    int gathers = 0; // that ran beside the optimizers of a step
    for (const Span& span : run.source().spans()) {
        for (std::size_t first = 0; first < run.optimizers().size(); first += 5) {
            const bool beside = span.begin_ns < run.optimizers()[first + 4].end_ns &&
                                run.optimizers()[first].begin_ns < span.end_ns;
            gathers += beside && span.kind == SpanKind::gather ? 1 : 0;
            EXPECT_FALSE(beside && span.kind == SpanKind::wait);
        }
    }
    EXPECT_GT(gathers, 0) << "a unit is gathered while the next is updated";
}

TEST(ReducerFiguresTest, gradients_out_of_order_are_refused) {
    const ToyGroups groups(tests::ranks());
    ToyTrainingOptions options;
    ToyTraining run(groups.all(), options);
    const auto device = device::make_host_device(1);
    const auto stream = device->stream("compute", device::Priority::normal);
    schedule::GradientReducer& reducer = run.reducer();
    schedule::Plan plan = options.plan();
    plan.passes = 1;
    plan.step_ends = {1};
    reducer.begin_segment(plan);
    EXPECT_THROW(reducer.begin(0, *stream), base::Error) << "unit 4 comes first";
    EXPECT_THROW(reducer.end(4, *stream), base::Error) << "nothing was begun";
    EXPECT_THROW(reducer.wait_reduced(*stream), base::Error) << "the step has not ended";
    EXPECT_THROW(reducer.collect_pass(), base::Error) << "nor any pass";
    EXPECT_THROW(reducer.begin_segment(plan), base::Error) << "nor the segment";
}
