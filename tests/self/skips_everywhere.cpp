// SPDX-License-Identifier: Apache-2.0
// Must be reported as a test that ran nowhere: it needs more ranks than any run has. tests/run.sh
// judges it.
#include <gtest/gtest.h>

#include "../support/mpi_test.hpp"

TEST(SelfTest, needs_more_ranks_than_any_run_has) {
    if (foregather::tests::fewer_than(1000)) {
        GTEST_SKIP() << "needs 1000 ranks";
    }
}

TEST(SelfTest, runs_at_every_size) { EXPECT_GE(foregather::tests::ranks(), 1); }
