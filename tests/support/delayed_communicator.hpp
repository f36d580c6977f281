// SPDX-License-Identifier: Apache-2.0
// A communicator that holds its collectives back for a random while, different on every rank, and
// keeps the order in which they were asked for. They themselves are another's.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <foregather/comm/communicator.hpp>
#include <foregather/device/host_stream.hpp>

namespace foregather::tests {

class DelayedCommunicator final : public comm::Communicator {
public:
    // Delays of 0 .. most, drawn from the seed. `inner` must outlive this object.
    DelayedCommunicator(comm::Communicator& inner, std::uint64_t seed,
                        std::chrono::microseconds most)
        : inner_(inner), random_(seed), most_(most) {}

    int rank() const override { return inner_.rank(); }
    int size() const override { return inner_.size(); }
    std::string name() const override { return inner_.name(); }
    base::Bytes brings(base::ConstSlab shard, base::Slab full) const override {
        return inner_.brings(shard, full);
    }
    std::unique_ptr<device::Memory> allocate(device::Device& device, base::Bytes size,
                                             const std::string& purpose) override {
        return inner_.allocate(device, size, purpose);
    }
    const std::string& asked() const { return asked_; } // for what, one line each

private:
    void do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                       device::Stream& stream) override {
        delay(what, stream);
        inner_.all_gather(shard, full, std::move(what), stream);
    }
    void do_reduce_scatter(base::ConstSlab full, base::Slab shard, std::string what,
                           device::Stream& stream) override {
        delay(what, stream);
        inner_.reduce_scatter(full, shard, std::move(what), stream);
    }
    void do_all_reduce(base::Slab slab, std::string what, device::Stream& stream) override {
        delay(what, stream);
        inner_.all_reduce(slab, std::move(what), stream);
    }
    void delay(const std::string& what, device::Stream& stream) {
        const std::chrono::microseconds time(
            std::uniform_int_distribution<std::int64_t>(0, most_.count())(random_));
        device::host_stream(stream).enqueue([time] { std::this_thread::sleep_for(time); });
        asked_ += what + "\n";
    }

    comm::Communicator& inner_;
    std::mt19937_64 random_;
    std::chrono::microseconds most_;
    std::string asked_;
};

} // namespace foregather::tests
