// SPDX-License-Identifier: Apache-2.0
// Must be reported as failed: rank 1 ends with exit status 0 in the middle of a test, so no
// expectation fails and no report is written. tests/run.sh judges it.
#include <cstdlib>

#include <gtest/gtest.h>

#include "../support/mpi_test.hpp"

TEST(SelfTest, one_rank_ends_in_the_middle) {
    if (foregather::tests::rank() == 1) {
        std::_Exit(0);
    }
    EXPECT_TRUE(foregather::tests::agree(true));
}
