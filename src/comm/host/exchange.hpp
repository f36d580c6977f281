// SPDX-License-Identifier: Apache-2.0
// One all-gather, reduce-scatter or all-reduce over MPI, run on the calling thread: parts go in
// messages small enough to need no handshake, with a loop of test and short sleep. A blocking call
// would spin on the core that computes, and without tests MPI makes no progress.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/comm/mpi_communicator.hpp>

#include "../waiting.hpp"
#include "sum.hpp"

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

    // at_once: how many may be under way.
    Traffic(MPI_Comm comm, Way way, std::size_t at_once)
        : comm_(comm), way_(way), requests_(at_once) {}

    // Before the first move() of an exchange; all of the exchange before has ended. `parts` must
    // live until all is.
    void begin(const std::vector<Part>& parts);
    // Starts what may be started, and tests the oldest message under way: has it ended? Does not
    // block. Throws on an MPI error.
    bool move();
    std::size_t finished() const { return finished_; } // messages, of the oldest
    bool ended() const { return finished_ == started_ && part_ == parts_->size(); }

private:
    void start_next();

    MPI_Comm comm_;
    Way way_;
    const std::vector<Part>* parts_ = nullptr;
    std::size_t part_ = 0; // to start from next, and where in it
    std::int64_t offset_ = 0;
    std::size_t started_ = 0; // messages of this exchange
    std::size_t finished_ = 0;
    std::vector<MPI_Request> requests_; // message i at i % their number
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

    // Sums the rank()-th of equal parts of `full` over ranks, in rank order, into `shard`, which
    // may be that part. Blocks and ends as run() does.
    void reduce_scatter(base::ConstSlab full, base::Slab shard, const std::string& what,
                        Clock::time_point begin);
    // Sums over ranks, in rank order and in place; returns what came from others. Blocks and ends
    // as run() does.
    base::Bytes all_reduce(base::Slab slab, const std::string& what, Clock::time_point begin);

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(weights_.size()); }

private:
    using Parts = std::vector<Traffic::Part>;
    // What is done with an incoming message, by its number, before its place is used again.
    using Arrived = std::function<void(std::size_t message)>;

    // ranges: of each rank's part of `whole`; result is of this rank's.
    void reduce(base::ConstSlab whole, const std::vector<base::Range>& ranges, base::Slab result,
                const std::string& what, Clock::time_point begin);
    Parts sent_to_owners(base::ConstSlab whole, const std::vector<base::Range>& ranges,
                         base::Elements step) const;
    void spread(base::Slab slab, const std::vector<base::Range>& ranges, const std::string& what,
                Clock::time_point begin);
    void start(const Parts& incoming, const Parts& outgoing);
    void finish(const std::string& what, Clock::time_point begin, const Arrived& arrived = {});

    mesh::Comm comm_;
    RollCall roll_call_;
    std::vector<int> weights_;
    MpiOptions options_;
    std::size_t at_once_;
    Traffic in_, out_;
    std::int64_t term_bytes_; // of one message of a reduction
    Sum sum_;
    std::unique_ptr<std::byte[]> terms_; // message i at i % at_once_; not touched before it is used
    int rank_ = 0;
    std::int64_t sequence_ = 0; // exchanges begun on this rank
};

} // namespace foregather::comm
