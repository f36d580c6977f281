// SPDX-License-Identifier: Apache-2.0
// MPI_Iallgatherv, watched.
#include "exchange.hpp"

#include <numeric>

namespace foregather::comm {

void TypeCloser::operator()(MPI_Datatype type) const noexcept {
    int finalized = 0;
    if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) {
        MPI_Type_free(&type);
    }
}

Exchange::Exchange(MPI_Comm group, std::vector<int> weights, const MpiOptions& options)
    : comm_(mesh::duplicate(group, "gathers")), roll_call_(group), weights_(std::move(weights)),
      options_(options) {
    mesh::check(MPI_Comm_rank(comm_.handle(), &rank_), "ask for a rank");
    MPI_Datatype block = MPI_DATATYPE_NULL;
    mesh::check(MPI_Type_contiguous(block_bytes, MPI_BYTE, &block), "make a block type");
    mesh::check(MPI_Type_commit(&block), "commit a block type");
    block_ = base::Unique<MPI_Datatype, TypeCloser>(block);
}

void Exchange::run(const std::byte* own, base::Bytes share, std::byte* full,
                   const std::string& what, Clock::time_point begin) {
    if (share.count % block_bytes != 0) {
        base::fail("the " + what + ": a part of " + std::to_string(share.count) +
                   " bytes is no multiple of " + std::to_string(block_bytes));
    }
    const int blocks = static_cast<int>(share.count / block_bytes);
    std::vector<int> counts;
    for (const int weight : weights_) {
        counts.push_back(weight * blocks);
    }
    std::vector<int> starts(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), 0);
    MPI_Request request = MPI_REQUEST_NULL;
    mesh::check(MPI_Iallgatherv(own, counts[static_cast<std::size_t>(rank_)], block_.handle(), full,
                                counts.data(), starts.data(), block_.handle(), comm_.handle(),
                                &request),
                "start the " + what);
    ++sequence_;
    const auto done = [&] {
        int flag = 0;
        mesh::check(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "run the " + what);
        return flag != 0;
    };
    if (!wait_until(done, begin, options_.timeout_s, [&] { roll_call_.answer(sequence_); })) {
        const std::string missing = roll_call_.missing(sequence_);
        give_up(what, options_.timeout_s, missing, roll_call_.first_to_tell());
    }
}

} // namespace foregather::comm
