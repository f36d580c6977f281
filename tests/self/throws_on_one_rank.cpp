// SPDX-License-Identifier: Apache-2.0
// Must be reported as failed: rank 1 throws out of the test, which no expectation sees.
// tests/run.sh judges the report.
#include <stdexcept>

#include <gtest/gtest.h>

#include "../support/mpi_test.hpp"

TEST(SelfTest, throws_on_rank_one) {
    if (foregather::tests::rank() == 1) {
        throw std::runtime_error("this exception must be reported");
    }
}
