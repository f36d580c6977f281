// SPDX-License-Identifier: Apache-2.0
// The Prefetcher end to end over MPI: every compute finds its unit's contents, at any depth, on
// ranks with and without tokens, and the figures are those of the schedule. Time is in
// prefetcher_overlap_test.cpp.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/mesh/control.hpp>

#include "../../support/delayed_communicator.hpp"
#include "../../support/mpi_test.hpp"
#include "../../support/toy_run.hpp"

using namespace foregather;
using namespace std::chrono_literals;
using tests::ToyModel;
using tests::ToyOptions;
using tests::ToyRun;

namespace {

constexpr int units = 6;

struct Case {
    int depth;
    int tied;
};

class PrefetcherTest : public testing::TestWithParam<Case> {
protected:
    static ToyModel model() { return tests::toy_model(units, GetParam().tied); }
    static ToyOptions options() {
        ToyOptions options;
        options.depth = GetParam().depth;
        return options;
    }
    // Gathers in a run, by the schedule as data.
    static std::int64_t scheduled_gathers() {
        schedule::Schedule schedule(model().uses, options().passes, options().depth);
        std::int64_t n = 0;
        for (schedule::Step step; schedule.next(step);) {
            n += step.kind == schedule::Step::Kind::gather ? 1 : 0;
        }
        return n;
    }

    std::unique_ptr<comm::Communicator> communicator_ =
        comm::make_mpi_communicator(MPI_COMM_WORLD, {});
};

} // namespace

TEST_P(PrefetcherTest, T07_every_compute_finds_its_unit_and_keeps_it) {
    ToyRun run(*communicator_, model(), options());
    const tests::ToyWatch& watch = run.run();
    EXPECT_EQ(watch.wrong, 0);
    EXPECT_EQ(watch.computes, static_cast<std::int64_t>(model().uses.size()) * options().passes);
    EXPECT_EQ(watch.sum, run.expected_sum());
}

TEST_P(PrefetcherTest, T07_its_figures_are_those_of_the_schedule) {
    ToyRun run(*communicator_, model(), options());
    run.run();
    const schedule::PrefetchFigures f = run.prefetcher().figures();
    EXPECT_EQ(run.prefetcher().depth(), GetParam().depth);
    EXPECT_EQ(f.requested, GetParam().depth);
    EXPECT_EQ(f.issued_ahead, GetParam().depth);
    EXPECT_NE(f.verdict, schedule::Verdict::not_observed) << f.reason;
    EXPECT_EQ(f.gathers, scheduled_gathers());
    if (GetParam().tied == 0) {
        EXPECT_EQ(f.gathers, units * options().passes) << "each unit once per pass";
        EXPECT_EQ(f.ahead_gathers, GetParam().depth == 0 ? 0 : f.gathers - 1)
            << "all but the run's first";
    }
    EXPECT_EQ(communicator_->gathers_done(), f.gathers);
}

TEST_P(PrefetcherTest, b4_issued_waited_and_freed_are_equal_at_the_end) {
    ToyRun run(*communicator_, model(), options());
    run.run();
    EXPECT_EQ(run.prefetcher().issued(), scheduled_gathers());
    EXPECT_EQ(run.prefetcher().waited(), scheduled_gathers());
    EXPECT_EQ(run.prefetcher().freed(), scheduled_gathers());
}

TEST_P(PrefetcherTest, b5_slots_are_depth_plus_one_of_the_largest_unit_and_nothing_is_allocated) {
    ToyRun run(*communicator_, model(), options());
    EXPECT_EQ(run.prefetcher().slots(), GetParam().depth + 1);
    EXPECT_EQ(run.prefetcher().slot_bytes(), base::Bytes{4 * run.plan().largest_unit});
    const int before = run.device().allocations();
    run.run();
    EXPECT_EQ(run.device().allocations(), before);
}

TEST_P(PrefetcherTest, a_rank_that_has_run_out_of_tokens_still_takes_part) {
    const bool idle = tests::ranks() > 1 && tests::rank() == tests::ranks() - 1;
    ToyOptions with_idle = options();
    with_idle.has_tokens = [idle](std::int64_t pass) { return !idle || pass == 0; };
    ToyRun run(*communicator_, model(), with_idle);
    const tests::ToyWatch& watch = run.run();
    EXPECT_EQ(watch.wrong, 0);
    EXPECT_EQ(watch.sum, idle ? tests::toy_sum(run.model(), run.plan(), 1) : run.expected_sum());
    EXPECT_EQ(run.prefetcher().issued(), scheduled_gathers()) << "the same gathers on every rank";
    EXPECT_EQ(run.prefetcher().freed(), scheduled_gathers());
    EXPECT_EQ(run.prefetcher().figures().issued_ahead, GetParam().depth);
    const auto uses = static_cast<std::int64_t>(run.model().uses.size());
    EXPECT_EQ(run.prefetcher().figures().computes, idle ? uses : uses * with_idle.passes);
    for (const schedule::Span& span : run.prefetcher().spans()) {
        EXPECT_FALSE(idle && span.pass > 0 && span.kind != schedule::SpanKind::gather);
    }
}

TEST_P(PrefetcherTest, gathers_are_asked_for_in_the_same_order_on_every_rank) {
    tests::DelayedCommunicator delayed(*communicator_, 0, 0us);
    ToyRun run(delayed, model(), options());
    run.run();
    const auto all = mesh::Control(MPI_COMM_WORLD).gather(delayed.asked());
    EXPECT_EQ(std::count(all[0].begin(), all[0].end(), '\n'), scheduled_gathers());
    EXPECT_EQ(all[0].rfind("gather of unit.0 for use 0\n", 0), 0U) << all[0];
    for (const std::string& of_rank : all) {
        EXPECT_EQ(of_rank, all[0]);
    }
}

// From the log of spans: what a reader of the timeline would check.
TEST_P(PrefetcherTest, b1_the_log_shows_gathers_enqueued_before_the_computes_they_hide_behind) {
    ToyOptions slow = options();
    slow.compute_time = [](std::int64_t) { return 300us; };
    ToyRun run(*communicator_, model(), slow);
    run.run();
    const auto spans = run.prefetcher().spans();
    std::vector<schedule::Span> computes;
    std::vector<schedule::Span> gathers;
    for (const schedule::Span& span : spans) {
        if (span.kind != schedule::SpanKind::wait) {
            (span.kind == schedule::SpanKind::gather ? gathers : computes).push_back(span);
            EXPECT_LE(span.issued_ns, span.begin_ns);
            EXPECT_LE(span.begin_ns, span.end_ns);
        }
    }
    ASSERT_EQ(computes.size(), model().uses.size() * static_cast<std::size_t>(slow.passes));
    ASSERT_EQ(static_cast<std::int64_t>(gathers.size()), scheduled_gathers());
    for (std::size_t i = 0; i < computes.size(); ++i) {
        EXPECT_EQ(computes[i].unit, model().uses[i % model().uses.size()]);
    }
    for (const schedule::Span& gather : gathers) {
        std::size_t use = 0; // that the gather serves: the first of its unit enqueued after it
        while (computes[use].sequence < gather.sequence || computes[use].unit != gather.unit) {
            ++use;
        }
        EXPECT_LE(gather.end_ns, computes[use].begin_ns)
            << "a compute began before its unit was there";
        EXPECT_EQ(gather.slot, computes[use].slot);
        const std::size_t before = use - std::min(use, static_cast<std::size_t>(GetParam().depth));
        EXPECT_LT(gather.sequence, computes[before].sequence) << "gather for use " << use;
        for (const schedule::Span& compute : computes) { // whoever used the slot before has ended
            if (compute.slot == gather.slot && compute.sequence < gather.sequence) {
                EXPECT_LE(compute.end_ns, gather.begin_ns);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(chains, PrefetcherTest,
                         testing::Values(Case{0, 0}, Case{1, 0}, Case{2, 0}, Case{3, 0}, Case{0, 2},
                                         Case{1, 2}, Case{2, 2}, Case{3, 2}, Case{1, 6},
                                         Case{3, 6}),
                         [](const auto& chain) {
                             return "depth_" + std::to_string(chain.param.depth) + "_tied_" +
                                    std::to_string(chain.param.tied);
                         });
