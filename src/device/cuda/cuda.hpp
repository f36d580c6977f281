// SPDX-License-Identifier: Apache-2.0
// The CUDA device's moving parts: owned handles, the pool of events, the clock that events are read
// by, and how the host waits.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include <foregather/base/error.hpp>
#include <foregather/device/cuda_device.hpp>
#include <foregather/device/cuda_stream.hpp>

namespace foregather::device {

struct StreamCloser {
    static cudaStream_t null() { return nullptr; }
    void operator()(cudaStream_t stream) const noexcept;
};
struct EventCloser {
    static cudaEvent_t null() { return nullptr; }
    void operator()(cudaEvent_t event) const noexcept;
};
using OwnedStream = base::Unique<cudaStream_t, StreamCloser>;
using OwnedEvent = base::Unique<cudaEvent_t, EventCloser>;

// Events that went are given out again: a run that has come to its steady state creates none.
class EventPool {
public:
    OwnedEvent take();
    void give_back(OwnedEvent event) { spare_.push_back(std::move(event)); }

private:
    std::vector<OwnedEvent> spare_;
};

// Times of events, which know no more than their distance from another, as a single-precision
// number of milliseconds. So they are measured from marks, one a pass, and marks from each other.
class EventClock {
public:
    // Blocks until the first mark is reached, so that its time is the host's.
    EventClock(EventPool& pool, cudaStream_t stream);

    void mark(cudaStream_t stream);
    std::int64_t marks() const { return marks_; }
    // The time of an event that was recorded when there were so many marks, and is done.
    std::int64_t time_ns(cudaEvent_t event, std::int64_t marks_then);

private:
    struct Mark {
        OwnedEvent event;
        std::int64_t time_ns = 0;
    };
    Mark& at(std::int64_t mark) { return ring_[static_cast<std::size_t>(mark) % ring_.size()]; }

    void know(std::int64_t mark); // its time and of all before

    std::array<Mark, 4> ring_;
    std::int64_t marks_ = 1;
    std::int64_t known_ = 0; // the latest mark whose time has been read
};

// What streams and events need of their device, which outlives them.
struct Gpu {
    EventPool events;
    std::unique_ptr<EventClock> clock;
    std::vector<std::function<void()>> looks; // Device::look_while_waiting()

    // Calls done(), then the looks, with short sleeps between, until it is true; at least once.
    void wait_until(const std::function<bool()>& done) const;
    void look() const;
};

class CudaEvent final : public Event {
public:
    explicit CudaEvent(Gpu& gpu) : gpu_(gpu), event_(gpu.events.take()) {}
    ~CudaEvent() override { gpu_.events.give_back(std::move(event_)); }
    void record(Stream& stream) override;
    bool done() const override;
    void wait_host() const override;
    std::int64_t time_ns() const override;

    cudaEvent_t handle() const { return event_.handle(); }

private:
    Gpu& gpu_;
    OwnedEvent event_;
    std::int64_t marks_then_ = 0; // 0: never recorded
};

class CudaStream final : public Stream {
public:
    CudaStream(std::string name, int priority, Gpu& gpu);
    void wait(const Event& event) override;
    void sync() override;

    cudaStream_t handle() const { return stream_.handle(); }

private:
    Gpu& gpu_;
    OwnedStream stream_;
};

// For destructors, which cannot throw: prints a failure, unless it is the one that was thrown last.
void tell(cudaError_t rc, const char* attempted) noexcept;

// Has it been reached? A failure of the device, which comes to light here first, is thrown.
bool reached(cudaError_t answer, const std::string& attempted);

std::int64_t steady_now_ns();

} // namespace foregather::device
