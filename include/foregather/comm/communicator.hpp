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

    // After a failure: gathers under way end, done or not, and nothing may be enqueued any more; a
    // rank that is gone would be waited for otherwise. Where gathers end by themselves, nothing.
    virtual void abort() noexcept {}

    // Enqueues; does not block. full.n == size() * shard.n or it throws. The r-th part of `full`
    // becomes rank r's `shard`, our own included. `shard` must not change and both must live until
    // it is done. `what` names the gather in messages: "gather of layer.3, pass 2".
    void all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                    device::Stream& stream);

    std::int64_t gathers_enqueued() const { return enqueued_; }
    // Gathers that have ended, bytes that other ranks' parts brought to this one, and the time that
    // these gathers took: counted where they happen.
    std::int64_t gathers_done() const { return done_.load(); }
    base::Bytes bytes_received() const { return {received_.load()}; }
    double longest_gather_s() const { return longest_s_.load(); }
    double busy_s() const { return busy_s_.load(); }

protected:
    // For backends: one gather has ended.
    void count_gather(base::Bytes received, double seconds);

private:
    virtual void do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                               device::Stream& stream) = 0;

    std::int64_t enqueued_ = 0;
    std::atomic<std::int64_t> done_ = 0;
    std::atomic<std::int64_t> received_ = 0;
    std::atomic<double> longest_s_ = 0;
    std::atomic<double> busy_s_ = 0;
};

} // namespace foregather::comm
