// SPDX-License-Identifier: Apache-2.0
// Checks and counts, once for all backends.
#include <foregather/comm/communicator.hpp>

#include <foregather/base/error.hpp>

namespace foregather::comm {
namespace {

void check_parts(int size, base::ConstSlab part, base::ConstSlab full, const std::string& what) {
    if (full.n != size * part.n || full.type != part.type) {
        base::fail(what + ": " + std::to_string(size) + " parts of " + std::to_string(part.n) +
                   " " + base::name_of(part.type) + " do not make " + std::to_string(full.n) + " " +
                   base::name_of(full.type));
    }
}

void check_summed(base::DType type, const std::string& what) {
    if (type != base::DType::f32 && type != base::DType::bf16) {
        base::fail(what + ": sums are of fp32 or bf16, not of " + base::name_of(type));
    }
}

[[noreturn]] void only_gathers(const std::string& what, const std::string& name) {
    base::fail(what + ": the transport \"" + name + "\" only gathers");
}

} // namespace

void Communicator::all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                              device::Stream& stream) {
    check_parts(size(), shard, full, what);
    do_all_gather(shard, full, std::move(what), stream);
    ++enqueued_; // what a backend refuses does not count
}

void Communicator::reduce_scatter(base::ConstSlab full, base::Slab shard, std::string what,
                                  device::Stream& stream) {
    check_parts(size(), shard, full, what);
    check_summed(full.type, what);
    do_reduce_scatter(full, shard, std::move(what), stream);
    ++enqueued_;
}

void Communicator::all_reduce(base::Slab slab, std::string what, device::Stream& stream) {
    check_summed(slab.type, what);
    do_all_reduce(slab, std::move(what), stream);
    ++enqueued_;
}

void Communicator::do_reduce_scatter(base::ConstSlab /*full*/, base::Slab /*shard*/,
                                     std::string what, device::Stream& /*stream*/) {
    only_gathers(what, name());
}

void Communicator::do_all_reduce(base::Slab /*slab*/, std::string what,
                                 device::Stream& /*stream*/) {
    only_gathers(what, name());
}

void Communicator::count_gather(base::Bytes received, double seconds) {
    // Only the thread of the communicator's stream writes; others read.
    received_ += received.count;
    busy_s_ = busy_s_ + seconds;
    if (seconds > longest_s_) {
        longest_s_ = seconds;
    }
    ++done_;
}

} // namespace foregather::comm
