// SPDX-License-Identifier: Apache-2.0
// Pairs of ranks in turn: in step s a rank sends to the s-th after it and receives from the s-th
// before it, so that every rank sends once and receives once at a time.
#include "exchange.hpp"

#include <algorithm>
#include <numeric>

namespace foregather::comm {

void Traffic::begin(const std::vector<Part>& parts) {
    parts_ = &parts;
    part_ = started_ = finished_ = 0;
    offset_ = 0;
}

void Traffic::start_next() {
    const Part& part = (*parts_)[part_];
    const std::int64_t left = part.bytes.count - offset_;
    const int n = static_cast<int>(std::min(left, message_bytes));
    std::byte* data = part.data + offset_;
    MPI_Request* request = &requests_[started_ % at_once];
    if (way_ == Way::in) {
        mesh::check(MPI_Irecv(data, n, MPI_BYTE, part.peer, 0, comm_, request), "receive a part");
    } else {
        mesh::check(MPI_Isend(data, n, MPI_BYTE, part.peer, 0, comm_, request), "send a part");
    }
    ++started_;
    offset_ += n;
    if (offset_ == part.bytes.count) {
        ++part_;
        offset_ = 0;
    }
}

bool Traffic::move() {
    while (part_ < parts_->size() && started_ - finished_ < at_once) {
        start_next();
    }
    if (finished_ == started_) {
        return false;
    }
    int done = 0;
    mesh::check(MPI_Test(&requests_[finished_ % at_once], &done, MPI_STATUS_IGNORE),
                "exchange parts");
    finished_ += done != 0 ? 1 : 0;
    return done != 0;
}

Exchange::Exchange(MPI_Comm group, std::vector<int> weights, const MpiOptions& options)
    : comm_(mesh::duplicate(group, "gathers")), roll_call_(group), weights_(std::move(weights)),
      options_(options), in_(comm_.handle(), Traffic::Way::in),
      out_(comm_.handle(), Traffic::Way::out), rank_(mesh::rank_in(group)) {}

void Exchange::run(const std::byte* own, base::Bytes share, std::byte* full,
                   const std::string& what, Clock::time_point begin) {
    std::vector<std::int64_t> starts(weights_.size());
    std::exclusive_scan(weights_.begin(), weights_.end(), starts.begin(), std::int64_t{0});
    const auto part_of = [&](int rank) {
        const auto r = static_cast<std::size_t>(rank);
        return Traffic::Part{rank, full + starts[r] * share.count, weights_[r] * share};
    };
    const Traffic::Part mine = part_of(rank_);
    std::vector<Traffic::Part> incoming;
    std::vector<Traffic::Part> outgoing;
    for (int step = 1; step < size() && share.count > 0; ++step) {
        incoming.push_back(part_of((rank_ - step + size()) % size()));
        outgoing.push_back({(rank_ + step) % size(), const_cast<std::byte*>(own), mine.bytes});
    }
    ++sequence_;
    in_.begin(incoming);
    out_.begin(outgoing);
    in_.move();
    out_.move();
    std::copy_n(own, mine.bytes.count, mine.data); // while the first messages are on their way
    const auto done = [&] {
        bool moved = true;
        while (moved) { // a test that ended a message has likely more to fetch
            moved = in_.move();
            moved = out_.move() || moved;
        }
        return in_.ended() && out_.ended();
    };
    if (!wait_until(done, begin, options_.timeout_s, [&] { roll_call_.answer(sequence_); })) {
        const std::string missing = roll_call_.missing(sequence_);
        give_up(what, options_.timeout_s, missing, roll_call_.first_to_tell());
    }
}

} // namespace foregather::comm
