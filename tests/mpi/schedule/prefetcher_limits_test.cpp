// SPDX-License-Identifier: Apache-2.0
// The Prefetcher at its limits: depths that are clamped, models of one unit, and uses in another
// order than was agreed, which it refuses.
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/comm/mpi_communicator.hpp>

#include "../../support/mpi_test.hpp"
#include "../../support/toy_run.hpp"

using namespace foregather;
using tests::ToyOptions;
using tests::ToyRun;

namespace {

class PrefetcherLimitsTest : public testing::Test {
protected:
    static ToyOptions at_depth(int depth) {
        ToyOptions options;
        options.depth = depth;
        return options;
    }
    static std::string thrown_by(const std::function<void()>& work) {
        try {
            work();
        } catch (const base::Error& error) {
            return error.what();
        }
        return "";
    }

    std::unique_ptr<comm::Communicator> communicator_ =
        comm::make_mpi_communicator(MPI_COMM_WORLD, {});
};

} // namespace

TEST_F(PrefetcherLimitsTest, b4_two_units_at_depth_five_are_gathered_once_and_stay) {
    ToyRun run(*communicator_, tests::toy_model(2, 0), at_depth(5));
    EXPECT_EQ(run.run().wrong, 0);
    EXPECT_EQ(run.prefetcher().depth(), 1);
    EXPECT_EQ(run.prefetcher().slots(), 2);
    EXPECT_EQ(run.prefetcher().figures().requested, 1);
    EXPECT_EQ(run.prefetcher().figures().issued_ahead, 1);
    EXPECT_EQ(run.prefetcher().issued(), 2);
    EXPECT_EQ(run.prefetcher().waited(), 2);
    EXPECT_EQ(run.prefetcher().freed(), 2);
}

TEST_F(PrefetcherLimitsTest, b4_a_model_of_one_unit_is_gathered_once) {
    for (const int depth : {0, 1, 3}) {
        ToyRun run(*communicator_, tests::toy_model(1, 0), at_depth(depth));
        EXPECT_EQ(run.run().wrong, 0);
        EXPECT_EQ(run.prefetcher().depth(), 0);
        EXPECT_EQ(run.prefetcher().slots(), 1);
        EXPECT_EQ(run.prefetcher().issued(), 1);
        EXPECT_EQ(run.prefetcher().freed(), 1);
        EXPECT_NE(run.prefetcher().figures().verdict, schedule::Verdict::not_observed);
    }
}

TEST_F(PrefetcherLimitsTest, one_pass_and_units_smaller_than_the_ranks) {
    ToyOptions options = at_depth(2);
    options.passes = 1;
    ToyRun run(*communicator_, tests::toy_model(4, 0, 1), options); // padding covers whole ranks
    EXPECT_EQ(run.run().wrong, 0);
    EXPECT_EQ(run.prefetcher().freed(), 4);
}

TEST_F(PrefetcherLimitsTest, no_passes_gather_nothing) {
    ToyOptions options = at_depth(1);
    options.passes = 0;
    ToyRun run(*communicator_, tests::toy_model(3, 0), options);
    EXPECT_EQ(run.run().computes, 0);
    EXPECT_EQ(run.prefetcher().issued(), 0);
}

TEST_F(PrefetcherLimitsTest, a_use_out_of_order_is_refused_by_number_and_unit) {
    ToyRun run(*communicator_, tests::toy_model(3, 0), at_depth(1));
    run.prefetcher().begin_pass(true);
    EXPECT_EQ(thrown_by([&] { run.prefetcher().acquire(1, run.compute()); }),
              "use 0 is of unit 0, but unit 1 was acquired");
    EXPECT_EQ(run.prefetcher().issued(), 0) << "before anything was gathered for it";
    run.prefetcher().acquire(0, run.compute());
    EXPECT_NE(thrown_by([&] { run.prefetcher().acquire(1, run.compute()); }).find("released"),
              std::string::npos);
    EXPECT_NE(thrown_by([&] { run.prefetcher().release(1, run.compute()); }), "");
    run.prefetcher().release(0, run.compute());
    EXPECT_NE(thrown_by([&] { run.prefetcher().release(0, run.compute()); }), "");
    run.compute().sync();
    run.gather().sync();
    EXPECT_TRUE(tests::agree(true));
}

TEST_F(PrefetcherLimitsTest, a_pass_that_begins_before_the_last_is_whole_is_refused) {
    ToyRun run(*communicator_, tests::toy_model(3, 0), at_depth(1));
    run.prefetcher().begin_pass(true);
    run.prefetcher().acquire(0, run.compute());
    run.prefetcher().release(0, run.compute());
    EXPECT_NE(thrown_by([&] { run.prefetcher().begin_pass(true); }), "");
    run.compute().sync();
    run.gather().sync();
    EXPECT_TRUE(tests::agree(true));
}

TEST_F(PrefetcherLimitsTest, a_pass_too_many_in_flight_is_refused) {
    ToyOptions options = at_depth(1);
    options.passes = 5;
    ToyRun run(*communicator_, tests::toy_model(2, 0), options);
    const auto pass = [&] {
        run.prefetcher().begin_pass(true);
        for (const base::UnitId unit : {0, 1}) {
            run.prefetcher().acquire(unit, run.compute());
            run.prefetcher().release(unit, run.compute());
        }
    };
    for (int i = 0; i < 3; ++i) { // the third is enqueued while two are uncollected
        EXPECT_EQ(thrown_by(pass), "");
    }
    EXPECT_NE(thrown_by(pass).find("in flight"), std::string::npos);
    run.compute().sync();
    run.gather().sync();
    EXPECT_TRUE(tests::agree(true));
}

TEST_F(PrefetcherLimitsTest, memory_that_does_not_hold_the_slots_is_refused) {
    const tests::ToyModel model = tests::toy_model(3, 0);
    const shard::ArenaPlan plan(model.units, tests::ranks());
    const auto device = device::make_host_device(1);
    const auto gather = device->stream("gather", device::Priority::high);
    const auto opened = [&](base::Elements elements) {
        const base::Slab slots{nullptr, elements, base::DType::f32};
        schedule::Prefetcher(tests::source_options(model, at_depth(1)), model.units, plan,
                             {[](base::UnitId) { return base::ConstSlab(); }, slots},
                             *communicator_, *device, *gather);
    };
    EXPECT_NE(thrown_by([&] { opened(2 * plan.largest_unit - 1); }), "");
    EXPECT_EQ(thrown_by([&] { opened(2 * plan.largest_unit); }), "");
}

TEST_F(PrefetcherLimitsTest, uses_beyond_the_last_pass_are_refused) {
    ToyOptions options = at_depth(1);
    options.passes = 1;
    ToyRun run(*communicator_, tests::toy_model(2, 0), options);
    run.run();
    run.prefetcher().begin_pass(true);
    EXPECT_NE(thrown_by([&] { run.prefetcher().acquire(0, run.compute()); }), "");
    run.compute().sync();
    EXPECT_TRUE(tests::agree(true));
}
