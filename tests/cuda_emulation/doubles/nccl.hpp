// SPDX-License-Identifier: Apache-2.0
// A communicator of the test double of NCCL, and how its ranks meet and exchange bytes over MPI.
// Tests only.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <nccl.h>

// What NCCL's header declares and leaves open.
struct ncclComm {
    // Written once, by the init.
    int rank = 0;
    int ranks = 0;
    int device = 0;
    bool blocking = true;
    int tag = 0;
    std::vector<int> world_ranks; // by rank

    std::mutex mutex; // guards all below
    ncclResult_t state = ncclInProgress;
    std::string message;
    bool finalized = false;
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;
    std::uint64_t calls = 0;
    std::function<ncclResult_t()> deferred; // the enqueue of a call that is still in progress
    int polls = 0;                          // since it was deferred
    cudaStream_t deferred_stream = nullptr;
    std::vector<ncclWindow_t> windows;

    std::atomic<bool> aborted{false};
    std::atomic<bool> destroyed{false};
};

namespace foregather::emulation {

// What a rank tells the others when they meet.
struct Member {
    int rank = 0;
    int ranks = 0;
    int world_rank = 0;
    int bus = 0;
    std::array<char, 16> uuid{};
};

// The id of a communicator: who made it, and the number of it there.
struct UniqueId {
    std::uint64_t mark = 0;
    int root = 0;
    int number = 0;
};

// A message to or from a rank of the world.
struct Message {
    int world_rank = 0;
    std::vector<char> bytes; // a receive brings its size
};

// Throws std::runtime_error where MPI is not ready for several threads.
void require_mpi();
int mpi_rank();

int tag_of(const UniqueId& id);

// Sends and receives all, with sleeps; false if `aborted` became true, and then what was received
// is not to be used. Throws std::runtime_error where MPI fails.
bool exchange(std::vector<Message>& sends, std::vector<Message>& receives, int tag,
              const std::atomic<bool>& aborted);

// All ranks tell the maker of the id who they are, and learn who the others are, in the order of
// ranks. Empty if aborted.
std::vector<Member> meet(const UniqueId& id, const Member& self, const std::atomic<bool>& aborted);

} // namespace foregather::emulation
