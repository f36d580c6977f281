// SPDX-License-Identifier: Apache-2.0
// Whatever the times of gathers and computes, on whichever rank, no compute ever sees another bit:
// random delays are put into both, from 200 seeds.
#include <chrono>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include <foregather/comm/mpi_communicator.hpp>

#include "../../support/delayed_communicator.hpp"
#include "../../support/mpi_test.hpp"
#include "../../support/toy_run.hpp"

using namespace foregather;
using namespace std::chrono_literals;
using std::chrono::microseconds;

namespace {

// Elements that were wrong, or -1 when the sum over all contents differs from what it must be.
std::int64_t wrong_elements(comm::Communicator& communicator, std::uint64_t seed) {
    std::mt19937_64 shared(seed); // draws that all ranks make alike
    const int units = 2 + static_cast<int>(shared() % 5);
    const int tied = static_cast<int>(shared() % static_cast<unsigned>(units + 1));
    tests::ToyOptions options;
    options.depth = static_cast<int>(shared() % 4);
    options.passes = 1 + static_cast<std::int64_t>(shared() % 3);
    std::mt19937_64 own(seed * 1000 + static_cast<std::uint64_t>(communicator.rank()));
    options.compute_time = [&own](std::int64_t) { // half of the computes take no time at all
        return microseconds(own() % 2 == 0 ? 0 : own() % 500);
    };
    tests::DelayedCommunicator delayed(communicator, own(), microseconds(own() % 500));
    tests::ToyRun run(delayed, tests::toy_model(units, tied, 200), options);
    const tests::ToyWatch& watch = run.run();
    return watch.wrong == 0 && watch.sum != run.expected_sum() ? -1 : watch.wrong;
}

} // namespace

TEST(PrefetcherDelaysTest, no_delay_changes_a_bit) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        EXPECT_EQ(wrong_elements(*communicator, seed), 0) << "seed " << seed;
    }
}

TEST(PrefetcherDelaysTest, one_slow_rank_changes_no_bit) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {});
    for (const int slow : {0, tests::ranks() - 1}) {
        tests::ToyOptions options;
        options.depth = 2;
        const auto time = tests::rank() == slow ? 3ms : 0ms;
        options.compute_time = [time](std::int64_t) { return microseconds(time); };
        tests::ToyRun run(*communicator, tests::toy_model(5, 2), options);
        const tests::ToyWatch& watch = run.run();
        EXPECT_EQ(watch.wrong, 0);
        EXPECT_EQ(watch.sum, run.expected_sum());
    }
}
