// SPDX-License-Identifier: Apache-2.0
// One all-gather over MPI, run on the calling thread: parts go in messages small enough to need no
// handshake, with a loop of test and short sleep. A blocking call would spin on the core that
// computes, and without tests MPI makes no progress.
#pragma once

#include <array>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/comm/mpi_communicator.hpp>

#include "../waiting.hpp"

namespace foregather::comm {

// Below the eager limit of Open MPI over TCP (64 KiB with its header). A longer message asks the
// receiver first, and the answer queues behind the bulk that flows the other way: two ranks that
// are not quite in step then use one direction of the link at a time.
inline constexpr std::int64_t message_bytes = std::int64_t{60} * 1024;

// The messages of one direction: in order, a few under way at a time.
class Traffic {
public:
    struct Part {
        int peer;
        std::byte* data;
        base::Bytes bytes;
    };
    enum class Way { in, out };

    Traffic(MPI_Comm comm, Way way) : comm_(comm), way_(way) {}

    // Before the first move() of a gather; all of the gather before has ended. `parts` must live
    // until all is.
    void begin(const std::vector<Part>& parts);
    // Starts what may be started, and tests the oldest message under way: has it ended? Does not
    // block. Throws on an MPI error.
    bool move();
    bool ended() const { return finished_ == started_ && part_ == parts_->size(); }

private:
    // Enough to fill a link while the thread sleeps; what is not taken yet lies with MPI.
    static constexpr std::size_t at_once = 64;

    void start_next();

    MPI_Comm comm_;
    Way way_;
    const std::vector<Part>* parts_ = nullptr;
    std::size_t part_ = 0; // to start from next, and where in it
    std::int64_t offset_ = 0;
    std::size_t started_ = 0; // messages of this gather
    std::size_t finished_ = 0;
    std::array<MPI_Request, at_once> requests_{}; // message i at i % at_once
};

class Exchange {
public:
    // Collective over `group`, which is duplicated. weights: how many equal shares each of its
    // ranks brings (all 1, or the ranks of each node).
    Exchange(MPI_Comm group, std::vector<int> weights, const MpiOptions& options);

    // Gathers `own` from all ranks into `full`, in rank order. share: bytes of one equal share.
    // Blocks; ends the job, naming who is missing, past the time limit counted from `begin`. A rank
    // that is late holds at most what the others bring to one gather in MPI's buffers.
    void run(const std::byte* own, base::Bytes share, std::byte* full, const std::string& what,
             Clock::time_point begin);

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(weights_.size()); }

private:
    mesh::Comm comm_;
    RollCall roll_call_;
    std::vector<int> weights_;
    MpiOptions options_;
    Traffic in_, out_;
    int rank_ = 0;
    std::int64_t sequence_ = 0; // gathers begun on this rank
};

} // namespace foregather::comm
