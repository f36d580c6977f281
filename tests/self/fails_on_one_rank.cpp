// SPDX-License-Identifier: Apache-2.0
// Must be reported as failed: only the last rank's expectation fails, and rank 0 sees nothing wrong
// itself. tests/run.sh judges the report.
#include <gtest/gtest.h>

#include "../support/mpi_test.hpp"

namespace tests = foregather::tests;

TEST(SelfTest, fails_on_the_last_rank_only) {
    EXPECT_NE(tests::rank(), tests::ranks() - 1) << "this failure must be reported";
}

TEST(SelfTest, passes_everywhere) { EXPECT_GE(tests::rank(), 0); }
