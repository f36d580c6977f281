// SPDX-License-Identifier: Apache-2.0
// Must be ended by the watchdog: rank 1 leaves a test alone, as after a rank-local ASSERT, and the
// others wait for it in a collective of the test. tests/run.sh judges what is said.
#include <gtest/gtest.h>
#include <mpi.h>

#include "../support/mpi_test.hpp"

TEST(SelfTest, one_rank_leaves_before_a_collective) {
    ASSERT_NE(foregather::tests::rank(), 1) << "this rank leaves alone";
    MPI_Barrier(MPI_COMM_WORLD);
}
