// SPDX-License-Identifier: Apache-2.0
// Checks and counts, once for all backends.
#include <foregather/comm/communicator.hpp>

#include <foregather/base/error.hpp>

namespace foregather::comm {

void Communicator::all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                              device::Stream& stream) {
    if (full.n != size() * shard.n || full.type != shard.type) {
        base::fail(what + ": " + std::to_string(size()) + " parts of " + std::to_string(shard.n) +
                   " " + base::name_of(shard.type) + " do not make " + std::to_string(full.n) +
                   " " + base::name_of(full.type));
    }
    do_all_gather(shard, full, std::move(what), stream);
    ++enqueued_; // what a backend refuses does not count
}

void Communicator::count_gather(base::Bytes received, double seconds) {
    // Only the gather stream's thread writes; others read.
    received_ += received.count;
    busy_s_ = busy_s_ + seconds;
    if (seconds > longest_s_) {
        longest_s_ = seconds;
    }
    ++done_;
}

} // namespace foregather::comm
