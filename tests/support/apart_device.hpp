// SPDX-License-Identifier: Apache-2.0
// A device whose memory the host shall not touch, on the threads of the host device: copies are
// checked for what they read and write, held back for a random while, and counted; events refuse to
// tell a time that a device's clock would have forgotten. What runs on it is the caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <foregather/base/error.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/device/host_stream.hpp>

namespace foregather::tests {

class ApartDevice final : public device::Device {
public:
    struct Copy {
        const std::byte* from;
        std::byte* to;
        std::int64_t bytes;
        std::string stream;
    };

    explicit ApartDevice(std::uint64_t seed = 0, std::chrono::microseconds most = {})
        : random_(seed), most_(most), marks_(std::make_shared<std::int64_t>(0)) {}

    std::unique_ptr<device::Stream> stream(const std::string& name,
                                           device::Priority priority) override {
        return std::make_unique<UnwrappingStream>(host_->stream(name, priority));
    }
    std::unique_ptr<device::Event> event() override {
        return std::make_unique<DatedEvent>(host_->event(), marks_);
    }
    std::int64_t now_ns() const override { return host_->now_ns(); }
    void mark_time(device::Stream&) override { ++*marks_; }
    device::Facts facts() const override { return {"apart", "a device of the tests", 1}; }
    bool host_memory() const override { return false; }

    // Do all these bytes lie in memory of the device, of the host for its copies?
    bool holds(const void* data, std::int64_t bytes) const { return in(own_, data, bytes); }
    bool lent(const void* data, std::int64_t bytes) const { return in(lent_, data, bytes); }
    const std::vector<Copy>& copies() const { return copies_; }

private:
    struct Place {
        const std::byte* data;
        std::int64_t bytes;
    };
    // Knows after which mark it was recorded.
    class DatedEvent final : public device::Event {
    public:
        DatedEvent(std::unique_ptr<device::Event> event, std::shared_ptr<std::int64_t> marks)
            : event_(std::move(event)), marks_(std::move(marks)) {}
        void record(device::Stream& stream) override {
            recorded_ = *marks_;
            event_->record(stream);
        }
        bool done() const override { return event_->done(); }
        void wait_host() const override { event_->wait_host(); }
        std::int64_t time_ns() const override {
            if (*marks_ > recorded_ + 2) {
                base::fail("a time is asked for " + std::to_string(*marks_ - recorded_) +
                           " marks after the one before it");
            }
            return event_->time_ns();
        }
        const device::Event& inner() const { return *event_; }

    private:
        std::unique_ptr<device::Event> event_;
        std::shared_ptr<std::int64_t> marks_;
        std::int64_t recorded_ = 0;
    };

    class UnwrappingStream final : public device::HostStream {
    public:
        explicit UnwrappingStream(std::unique_ptr<device::Stream> stream)
            : HostStream(stream->name()), stream_(std::move(stream)) {}
        void wait(const device::Event& event) override {
            stream_->wait(dynamic_cast<const DatedEvent&>(event).inner());
        }
        void sync() override { stream_->sync(); }
        void enqueue(std::function<void()> work) override { host().enqueue(std::move(work)); }
        void parallel(std::int64_t blocks,
                      const std::function<void(std::int64_t, int)>& body) override {
            host().parallel(blocks, body);
        }
        int threads() const override { return host().threads(); }
        int threads_seen() const override { return host().threads_seen(); }

    private:
        device::HostStream& host() const { return device::host_stream(*stream_); }
        std::unique_ptr<device::Stream> stream_;
    };

    static bool in(const std::vector<Place>& places, const void* data, std::int64_t bytes) {
        const auto* begin = static_cast<const std::byte*>(data);
        for (const Place& place : places) {
            if (begin >= place.data && begin + bytes <= place.data + place.bytes) {
                return true;
            }
        }
        return false;
    }
    std::unique_ptr<device::Memory> remembered(std::unique_ptr<device::Memory> memory,
                                               std::vector<Place>& places) {
        places.push_back({memory->data(), memory->size().count});
        return memory;
    }
    std::unique_ptr<device::Memory> do_allocate(base::Bytes size) override {
        return remembered(host_->allocate(size, "device memory"), own_);
    }
    std::unique_ptr<device::Memory> do_allocate_host(base::Bytes size) override {
        return remembered(host_->allocate_host(size, "host memory"), lent_);
    }
    void do_copy(base::View<const std::byte> from, base::View<std::byte> to,
                 device::Stream& stream) override {
        const auto n = static_cast<std::int64_t>(from.size());
        if (!(lent(from.data(), n) && holds(to.data(), n)) &&
            !(holds(from.data(), n) && lent(to.data(), n))) {
            base::fail("a copy that is not between the device and host memory for its copies");
        }
        copies_.push_back({from.data(), to.data(), n, stream.name()});
        const std::chrono::microseconds delay(
            std::uniform_int_distribution<std::int64_t>(0, most_.count())(random_));
        device::host_stream(stream).enqueue([delay] { std::this_thread::sleep_for(delay); });
        host_->copy_in(from, to, stream);
    }

    std::unique_ptr<device::Device> host_ = device::make_host_device(1);
    std::mt19937_64 random_;
    std::chrono::microseconds most_;
    std::shared_ptr<std::int64_t> marks_;
    std::vector<Place> own_, lent_;
    std::vector<Copy> copies_;
};

} // namespace foregather::tests
