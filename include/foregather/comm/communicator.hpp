// SPDX-License-Identifier: Apache-2.0
// Collectives on device memory, enqueued on a stream. Sizes are checked here, once, for all
// backends; order of streams and meaning of buffers are others' business.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <foregather/base/view.hpp>
#include <foregather/device/device.hpp>
#include <foregather/device/stream.hpp>

namespace foregather::comm {

class Communicator {
public:
    virtual ~Communicator() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual std::string name() const = 0; // of the transport: "mpi", "nccl"
    // Must shards and slots lie in memory that the ranks of a node share?
    virtual bool shares_node() const { return false; }
    // What a gather of these brings to this rank from others, and none of its node has already.
    virtual base::Bytes brings(base::ConstSlab shard, base::Slab full) const {
        return full.bytes() - shard.bytes();
    }

    // Memory of `device` for shards and slots of these gathers, counted among the device's. Errors
    // as Device::allocate().
    virtual std::unique_ptr<device::Memory> allocate(device::Device& device, base::Bytes size,
                                                     const std::string& purpose) {
        return device.allocate(size, purpose);
    }

    // After a failure: collectives under way end, done or not, and nothing may be enqueued any
    // more; a rank that is gone would be waited for otherwise. Where they end by themselves,
    // nothing.
    virtual void abort() noexcept {}

    // Enqueues; does not block. full.n == size() * shard.n or it throws. The r-th part of `full`
    // becomes rank r's `shard`, our own included. `shard` must not change and both must live until
    // it is done. `what` names the gather in messages: "gather of layer.3, pass 2".
    void all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                    device::Stream& stream);

    // Sums are of fp32, or of bf16: its values are added in fp32 and the result is bf16 again,
    // rounded to nearest; "mpi" rounds once, NCCL maybe once for each rank. One rank's sum is its
    // own values. The collectives of one communicator run one after another: give it one stream,
    // and reductions that shall run beside gathers a communicator of their own.

    // Enqueues; does not block. full.n == size() * shard.n, of one type, or it throws. `shard`
    // becomes the sum over ranks, r-th term rank r's, of the rank()-th part of their `full`. They
    // do not overlap, or `shard` is that part; `full` must not change, and both must live until it
    // is done. "mpi" adds in rank order: the same bits on every run. `what` names it in messages:
    // "reduction of layer.3, pass 2".
    void reduce_scatter(base::ConstSlab full, base::Slab shard, std::string what,
                        device::Stream& stream);
    // Enqueues; does not block. Replaces each element by its sum over ranks, the same bits on every
    // rank; "mpi" adds in rank order. slab.n is the same on all ranks, and any. `slab` must live,
    // and be left alone, until it is done.
    void all_reduce(base::Slab slab, std::string what, device::Stream& stream);

    // Of the counts, a reduction is one gather more.
    std::int64_t gathers_enqueued() const { return enqueued_; }
    // Gathers that have ended, bytes that other ranks' parts brought to this one, and the time that
    // these gathers took: counted where they happen.
    std::int64_t gathers_done() const { return done_.load(); }
    base::Bytes bytes_received() const { return {received_.load()}; }
    double longest_gather_s() const { return longest_s_.load(); }
    double busy_s() const { return busy_s_.load(); }

protected:
    // For backends: one gather, or reduction, has ended.
    void count_gather(base::Bytes received, double seconds);

private:
    virtual void do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                               device::Stream& stream) = 0;
    // Of fp32 or bf16. Those that only gather throw.
    virtual void do_reduce_scatter(base::ConstSlab full, base::Slab shard, std::string what,
                                   device::Stream& stream);
    virtual void do_all_reduce(base::Slab slab, std::string what, device::Stream& stream);

    std::int64_t enqueued_ = 0;
    std::atomic<std::int64_t> done_ = 0;
    std::atomic<std::int64_t> received_ = 0;
    std::atomic<double> longest_s_ = 0;
    std::atomic<double> busy_s_ = 0;
};

} // namespace foregather::comm
