// SPDX-License-Identifier: Apache-2.0
// What a test under mpirun may ask of its harness: who it is, and what all ranks agree on. The
// tests themselves, and how their verdicts are joined, are elsewhere.
#pragma once

#include <cstdint>

namespace foregather::tests {

int rank();  // in MPI_COMM_WORLD
int ranks(); // of MPI_COMM_WORLD

// For `if (fewer_than(3)) { GTEST_SKIP() << "needs 3 ranks"; }`: the same on every rank.
bool fewer_than(int needed);

// Is it true on every rank? Collective; sleeps while it waits. For leaving a test early together: a
// rank that leaves alone lets the others hang in their next collective.
bool agree(bool mine);

// The same on every rank? Collective.
bool equal_everywhere(std::int64_t mine);

} // namespace foregather::tests
