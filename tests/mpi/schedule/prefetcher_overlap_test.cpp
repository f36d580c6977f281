// SPDX-License-Identifier: Apache-2.0
// What the clocks show where gathers wait for a link and computes sleep: overlap at depth 1, none
// at depth 0, and the verdicts that follow. One rank moves nothing over a link, so these need two.
#include <chrono>
#include <memory>

#include <gtest/gtest.h>

#include <foregather/comm/mpi_communicator.hpp>

#include "../../support/mpi_test.hpp"
#include "../../support/toy_run.hpp"

using namespace foregather;
using namespace std::chrono_literals;
using schedule::PrefetchFigures;
using schedule::Verdict;

namespace {

constexpr int units = 6;
constexpr std::int64_t passes = 3;
constexpr auto compute_time = 25ms;
constexpr double gather_s = 0.006; // of the largest unit

// Figures of a run whose gathers take a quarter as long as its computes: room for a busy machine.
PrefetchFigures paced_run(int depth, bool has_tokens = true) {
    const tests::ToyModel model = tests::toy_model(units, 0, 20'000);
    const shard::ArenaPlan plan(model.units, tests::ranks());
    const auto received =
        static_cast<double>(4 * plan.largest_unit / tests::ranks() * (tests::ranks() - 1));
    const auto communicator =
        comm::make_mpi_communicator(MPI_COMM_WORLD, {.bytes_per_second = received / gather_s});
    tests::ToyOptions options;
    options.depth = depth;
    options.passes = passes;
    options.compute_time = [](std::int64_t) { return compute_time; };
    options.has_tokens = [has_tokens](std::int64_t) { return has_tokens; };
    tests::ToyRun run(*communicator, model, options);
    EXPECT_EQ(run.run().wrong, 0);
    return run.prefetcher().figures();
}

} // namespace

TEST(PrefetcherOverlapTest, T07_at_depth_one_gathers_hide_behind_computes) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const PrefetchFigures f = paced_run(1);
    EXPECT_EQ(f.verdict, Verdict::observed) << f.reason;
    EXPECT_EQ(f.judged, units * passes - 1);
    EXPECT_GE(f.begun_ahead, 1);
    EXPECT_GE(f.begun_share, 0.8);
    EXPECT_GE(f.gather_s, units * passes * gather_s * 0.8);
    EXPECT_GT(f.overlapped_s, f.gather_s / 2);
    EXPECT_LT(f.exposed_s, f.gather_s / 2) << "less than half of depth 0's, where all of it is";
    EXPECT_GE(f.compute_s, units * passes * 0.025);
}

TEST(PrefetcherOverlapTest, T07_at_depth_zero_nothing_overlaps_and_every_gather_is_exposed) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const PrefetchFigures f = paced_run(0);
    EXPECT_EQ(f.verdict, Verdict::observed) << f.reason;
    EXPECT_EQ(f.overlapped_s, 0);
    EXPECT_EQ(f.begun_share, 0);
    EXPECT_GE(f.exposed_s, f.gather_s * 0.999);
}

TEST(PrefetcherOverlapTest, a_rank_without_tokens_has_no_say_in_the_verdict) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const bool idle = tests::rank() == 0;
    const PrefetchFigures f = paced_run(1, !idle);
    EXPECT_EQ(f.verdict, idle ? Verdict::issued : Verdict::observed) << f.reason;
    EXPECT_EQ(f.exposed_s > 0, !idle);
    EXPECT_EQ(f.issued_ahead, 1);
}
