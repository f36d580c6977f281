// SPDX-License-Identifier: Apache-2.0
// Must be ended by the watchdog: rank 1 never comes to the barrier that the others wait in.
// tests/run.sh judges how soon, and what is said.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "../support/mpi_test.hpp"

TEST(SelfTest, one_rank_never_arrives) {
    if (foregather::tests::rank() == 1) {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
    EXPECT_TRUE(foregather::tests::agree(true));
}
