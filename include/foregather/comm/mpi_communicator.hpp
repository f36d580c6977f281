// SPDX-License-Identifier: Apache-2.0
// All-gathers and reductions over MPI on the worker thread of a host stream.
#pragma once

#include <memory>

#include <foregather/comm/communicator.hpp>
#include <foregather/mesh/mpi.hpp>

namespace foregather::comm {

struct MpiOptions {
    double timeout_s = 120;      // a collective that takes longer ends the job
    double bytes_per_second = 0; // emulated link: one takes at least received / this; 0 = off
};

// Collective over `group`, which is duplicated. Collectives must be enqueued in the same order on
// all ranks. One past its time limit prints one line that names the ranks that did not arrive, and
// aborts. Reductions use at most 4 MiB more, made here and first touched by the first of them.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm group, const MpiOptions& options);

// The same for ranks that share nodes: `node` holds the ranks of `group` on this node, consecutive
// in it. A call's `shard` must lie in memory that the node shares, right behind that of the rank
// before, and `full` in memory that it shares too, at the same place for all its ranks; the node's
// first rank then gathers for all. A slot is overwritten once every rank of the node has come to
// the call that does it. Reductions are between all ranks of `group`, as if each had a node of its
// own, and of any memory.
std::unique_ptr<Communicator> make_node_communicator(MPI_Comm group, MPI_Comm node,
                                                     const MpiOptions& options);

// The same for a group whose ranks are all on one node, of which reduce-scatters move nothing: each
// rank reads its part of the others' `full` where it lies, adds in rank order, and the call ends on
// a rank when all have read that rank's. So `full` must lie in memory of allocate(), at the same
// place on all ranks, or it throws. allocate() is collective then, and blocks; what it gives must
// not outlive the communicator. All else goes by messages, and takes any memory.
std::unique_ptr<Communicator> make_shared_communicator(MPI_Comm group, const MpiOptions& options);

} // namespace foregather::comm
