// SPDX-License-Identifier: Apache-2.0
// All-gathers and reductions by NCCL between the GPUs of a group of MPI ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <foregather/comm/communicator.hpp>
#include <foregather/device/device.hpp>
#include <foregather/mesh/mpi.hpp>

namespace foregather::comm {

struct NcclOptions {
    // Of the communicator, by its role, "gather", "reduce" or "replica": in messages, and in NCCL's
    // own logs.
    std::string name = "gather";
    double timeout_s = 120;      // setting up, or a collective, that takes longer ends the job
    double bytes_per_second = 0; // emulated link: one takes at least received / this; 0 = off
};

// Collective over `group`, one rank a GPU; blocks until the communicator works: its first rank's id
// is broadcast by MPI, set-up runs without blocking under the time limit, and one small gather has
// opened the connections. Collectives must be enqueued in the same order on all ranks; NCCL's
// errors and those past their limit come to light while the host waits for `device`, which must
// outlive the result. Throws mesh::AgreedError(failed), the same on every rank, where set-up fails.
std::unique_ptr<Communicator> make_nccl_communicator(MPI_Comm group, device::Device& device,
                                                     const NcclOptions& options);

// "2.28.9", of the library, which is loaded. Throws Error(refused) if there is none.
std::string nccl_version();
// Of the headers that the program was built with.
std::string nccl_built_with();

// Files of settings that NCCL obeys and this program has no say in, each in a sentence.
std::vector<std::string> nccl_override_files();

} // namespace foregather::comm
