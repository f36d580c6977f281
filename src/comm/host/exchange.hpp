// SPDX-License-Identifier: Apache-2.0
// One all-gather over MPI, run on the calling thread: MPI_Iallgatherv with a loop of test and short
// sleep. A blocking call would spin on the core that computes, and without tests MPI makes no
// progress.
#pragma once

#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/comm/mpi_communicator.hpp>

#include "waiting.hpp"

namespace foregather::comm {

// Parts are multiples of this many bytes; counting in blocks keeps MPI's int counts below 512 GiB.
inline constexpr int block_bytes = 256;

struct TypeCloser {
    static MPI_Datatype null() { return MPI_DATATYPE_NULL; }
    void operator()(MPI_Datatype type) const noexcept;
};

class Exchange {
public:
    // Collective over `group`, which is duplicated. weights: how many equal shares each of its
    // ranks brings (all 1, or the ranks of each node).
    Exchange(MPI_Comm group, std::vector<int> weights, const MpiOptions& options);

    // Gathers `own` from all ranks into `full`, in rank order. share: bytes of one equal share.
    // Blocks; ends the job, naming who is missing, past the time limit counted from `begin`.
    void run(const std::byte* own, base::Bytes share, std::byte* full, const std::string& what,
             Clock::time_point begin);

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(weights_.size()); }

private:
    mesh::Comm comm_;
    RollCall roll_call_;
    std::vector<int> weights_;
    MpiOptions options_;
    base::Unique<MPI_Datatype, TypeCloser> block_;
    int rank_ = 0;
    std::int64_t sequence_ = 0; // gathers begun on this rank
};

} // namespace foregather::comm
