// SPDX-License-Identifier: Apache-2.0
// Pairs of ranks in turn: in step s a rank sends to the s-th after it and receives from the s-th
// before it, so that every rank sends once and receives once at a time.
#include "exchange.hpp"

#include <algorithm>
#include <numeric>

namespace foregather::comm {
namespace {

// Messages under way: enough to fill a link while the thread sleeps; what is not taken yet lies
// with MPI. And a reduction must have room for one from each other rank: it takes them in the
// order of ranks, whoever sends first.
std::size_t at_once_among(std::size_t ranks) { return std::max<std::size_t>(64, ranks - 1); }

// The same memory for any number of ranks.
std::int64_t term_bytes_of(std::size_t at_once) {
    return message_bytes * 64 / static_cast<std::int64_t>(at_once) / 4 * 4;
}

} // namespace

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
    MPI_Request* request = &requests_[started_ % requests_.size()];
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
    while (part_ < parts_->size() && started_ - finished_ < requests_.size()) {
        start_next();
    }
    if (finished_ == started_) {
        return false;
    }
    int done = 0;
    mesh::check(MPI_Test(&requests_[finished_ % requests_.size()], &done, MPI_STATUS_IGNORE),
                "exchange parts");
    finished_ += done != 0 ? 1 : 0;
    return done != 0;
}

Exchange::Exchange(MPI_Comm group, std::vector<int> weights, const MpiOptions& options)
    : comm_(mesh::duplicate(group, "gathers and reductions")), roll_call_(group),
      weights_(std::move(weights)), options_(options), at_once_(at_once_among(weights_.size())),
      in_(comm_.handle(), Traffic::Way::in, at_once_),
      out_(comm_.handle(), Traffic::Way::out, at_once_), term_bytes_(term_bytes_of(at_once_)),
      sum_(term_bytes_ / base::size_of(base::DType::bf16)),
      terms_(std::make_unique_for_overwrite<std::byte[]>(at_once_ *
                                                         static_cast<std::size_t>(term_bytes_))),
      rank_(mesh::rank_in(group)) {}

void Exchange::start(const Parts& incoming, const Parts& outgoing) {
    ++sequence_;
    in_.begin(incoming);
    out_.begin(outgoing);
}

void Exchange::finish(const std::string& what, Clock::time_point begin, const Arrived& arrived) {
    const auto done = [&] {
        bool moved = true;
        while (moved) { // a test that ended a message has likely more to fetch
            moved = in_.move();
            if (moved && arrived) {
                arrived(in_.finished() - 1);
            }
            moved = out_.move() || moved;
        }
        return in_.ended() && out_.ended();
    };
    if (!wait_until(done, begin, options_.timeout_s, [&] { roll_call_.answer(sequence_); })) {
        const std::string missing = roll_call_.missing(sequence_);
        const bool defers = roll_call_.another_waits_before();
        if (defers) { // its patience may have begun later than this rank's
            const auto is_over = [] { return false; };
            wait_until(is_over, Clock::now(), options_.timeout_s + 3,
                       [&] { roll_call_.answer(sequence_); });
        }
        give_up(what, options_.timeout_s, missing, defers || roll_call_.first_to_tell());
    }
}

void Exchange::run(const std::byte* own, base::Bytes share, std::byte* full,
                   const std::string& what, Clock::time_point begin) {
    std::vector<std::int64_t> starts(weights_.size());
    std::exclusive_scan(weights_.begin(), weights_.end(), starts.begin(), std::int64_t{0});
    const auto part_of = [&](int rank) {
        const auto r = static_cast<std::size_t>(rank);
        return Traffic::Part{rank, full + starts[r] * share.count, weights_[r] * share};
    };
    const Traffic::Part mine = part_of(rank_);
    Parts incoming;
    Parts outgoing;
    for (int step = 1; step < size() && share.count > 0; ++step) {
        incoming.push_back(part_of((rank_ - step + size()) % size()));
        outgoing.push_back({(rank_ + step) % size(), const_cast<std::byte*>(own), mine.bytes});
    }
    start(incoming, outgoing);
    in_.move();
    out_.move();
    std::copy_n(own, mine.bytes.count, mine.data); // while the first messages are on their way
    finish(what, begin);
}

// In steps that fit a message, and step for step to the ranks after this one.
Exchange::Parts Exchange::sent_to_owners(base::ConstSlab whole,
                                         const std::vector<base::Range>& ranges,
                                         base::Elements step) const {
    base::Elements longest = 0;
    for (const base::Range& range : ranges) {
        longest = std::max(longest, range.size());
    }
    Parts outgoing;
    for (base::Elements first = 0; first < longest; first += step) {
        for (int k = 1; k < size(); ++k) {
            const int to = (rank_ + k) % size();
            const base::Range& range = ranges[static_cast<std::size_t>(to)];
            if (first < range.size()) {
                const base::ConstSlab sent =
                    whole.part(range.begin + first, std::min(step, range.size() - first));
                outgoing.push_back({to, const_cast<std::byte*>(sent.data), sent.bytes()});
            }
        }
    }
    return outgoing;
}

void Exchange::reduce(base::ConstSlab whole, const std::vector<base::Range>& ranges,
                      base::Slab result, const std::string& what, Clock::time_point begin) {
    const base::Elements step = term_bytes_ / base::size_of(whole.type);
    const base::Elements own_begin = ranges[static_cast<std::size_t>(rank_)].begin;
    const int others = size() - 1;
    const auto place = [&](std::size_t message) {
        return terms_.get() + (message % at_once_) * static_cast<std::size_t>(term_bytes_);
    };
    Parts incoming;
    for (base::Elements first = 0; first < result.n; first += step) {
        const base::Bytes bytes = result.part(first, std::min(step, result.n - first)).bytes();
        for (int k = 0; k < others; ++k) {
            incoming.push_back({k < rank_ ? k : k + 1, place(incoming.size()), bytes});
        }
    }
    // Messages come step by step, and in rank order within: so are they added, with the own values
    // in their place. A step of the result is written when all its own values have been read.
    const auto arrived = [&](std::size_t message) {
        const int k = static_cast<int>(message % static_cast<std::size_t>(others));
        const base::Elements first = static_cast<base::Elements>(message) / others * step;
        const base::Slab part = result.part(first, std::min(step, result.n - first));
        const base::ConstSlab own = whole.part(own_begin + first, part.n);
        if (k == 0) {
            sum_.clear();
        }
        if (k == rank_) {
            sum_.add(own);
        }
        sum_.add({place(message), part.n, part.type});
        if (k + 1 == others) {
            if (rank_ == others) {
                sum_.add(own);
            }
            sum_.store(part);
        }
    };
    const Parts outgoing = sent_to_owners(whole, ranges, step);
    start(incoming, outgoing);
    finish(what, begin, arrived);
    if (others == 0 && result.n > 0 && whole.data != result.data) {
        std::copy_n(whole.data, whole.bytes().count, result.data);
    }
}

void Exchange::reduce_scatter(base::ConstSlab full, base::Slab shard, const std::string& what,
                              Clock::time_point begin) {
    std::vector<base::Range> ranges;
    for (int r = 0; r < size(); ++r) {
        ranges.push_back({r * shard.n, (r + 1) * shard.n});
    }
    reduce(full, ranges, shard, what, begin);
}

base::Bytes Exchange::all_reduce(base::Slab slab, const std::string& what,
                                 Clock::time_point begin) {
    const base::Elements share = (slab.n + size() - 1) / size();
    std::vector<base::Range> ranges;
    for (int r = 0; r < size(); ++r) {
        ranges.push_back({std::min(r * share, slab.n), std::min((r + 1) * share, slab.n)});
    }
    const base::Range own = ranges[static_cast<std::size_t>(rank_)];
    const base::Slab mine = slab.part(own.begin, own.size());
    reduce(slab, ranges, mine, what, begin);
    spread(slab, ranges, what, begin);
    return (size() - 1) * mine.bytes() + (slab.bytes() - mine.bytes());
}

// Each rank's part of the slab to all others.
void Exchange::spread(base::Slab slab, const std::vector<base::Range>& ranges,
                      const std::string& what, Clock::time_point begin) {
    const auto part_of = [&](int owner, int peer) {
        const base::Range& range = ranges[static_cast<std::size_t>(owner)];
        const base::Slab part = slab.part(range.begin, range.size());
        return Traffic::Part{peer, part.data, part.bytes()};
    };
    Parts incoming;
    Parts outgoing;
    for (int step = 1; step < size(); ++step) {
        const int from = (rank_ - step + size()) % size();
        incoming.push_back(part_of(from, from));
        outgoing.push_back(part_of(rank_, (rank_ + step) % size()));
    }
    const auto nothing = [](const Traffic::Part& part) { return part.bytes.count == 0; };
    std::erase_if(incoming, nothing);
    std::erase_if(outgoing, nothing);
    start(incoming, outgoing);
    finish(what, begin);
}

} // namespace foregather::comm
