// SPDX-License-Identifier: Apache-2.0
// MPI's return codes, owned communicators, and waiting that leaves the core to others.
// It knows no ranks' roles: topology.hpp does.
#pragma once

#include <string>

#include <mpi.h>

#include <foregather/base/error.hpp>

namespace foregather::mesh {

// Throws Error(failed) with MPI's own text when rc is not MPI_SUCCESS. `attempted` completes the
// sentence "MPI failed to ...": e.g. "broadcast the deck".
void check(int rc, const std::string& attempted, base::Where where = base::Where::here());

struct CommCloser {
    static MPI_Comm null() { return MPI_COMM_NULL; }
    void operator()(MPI_Comm comm) const noexcept;
};
using Comm = base::Unique<MPI_Comm, CommCloser>; // freed with its owner; needs MPI still up

// MPI's own name and version: "Open MPI v4.1.4". May be called before MPI is up.
std::string library_version();

// This process's rank in a communicator, and how many ranks it has.
int rank_in(MPI_Comm comm);
int size_of(MPI_Comm comm);

// This node's name, as gethostname gives it.
std::string host_name();

// A communicator of its own over the same ranks. Collective; blocks.
Comm duplicate(MPI_Comm comm, const std::string& purpose);

// Blocks until the request is complete, with short sleeps between tests: a blocking MPI call spins
// and takes the core from the compute threads. Not for hot paths below a few hundred microseconds.
void wait_politely(MPI_Request& request, const std::string& attempted);

} // namespace foregather::mesh
