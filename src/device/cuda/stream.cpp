// SPDX-License-Identifier: Apache-2.0
// Streams and events of the CUDA runtime, the clock of events, and waiting without spinning.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include <nvtx3/nvToolsExtCudaRt.h>

#include "cuda.hpp"

namespace foregather::device {
namespace {

using namespace std::chrono_literals;

// The failure that check() threw last: a device that has failed answers every call with it.
std::atomic<cudaError_t> thrown = cudaSuccess;

const CudaEvent& cuda_event(const Event& event, const std::string& stream) {
    const auto* cuda = dynamic_cast<const CudaEvent*>(&event);
    if (cuda == nullptr) {
        base::fail("stream " + stream + " was told to wait for an event of another device");
    }
    return *cuda;
}

std::int64_t ns_between(cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, from, to), "read the time between two events");
    return static_cast<std::int64_t>(static_cast<double>(ms) * 1e6);
}

} // namespace

void tell(cudaError_t rc, const char* attempted) noexcept {
    if (rc != cudaSuccess && rc != cudaErrorCudartUnloading && rc != thrown.load()) {
        std::fprintf(stderr, "foregather: CUDA failed to %s: %s\n", attempted,
                     cudaGetErrorString(rc));
    }
}

void check(cudaError_t rc, const std::string& attempted, base::Where where) {
    if (rc != cudaSuccess) {
        thrown = rc;
        throw base::Error(base::Status::failed,
                          "CUDA failed to " + attempted + ": " + cudaGetErrorName(rc) + ", " +
                              cudaGetErrorString(rc),
                          where);
    }
}

cudaStream_t cuda_stream(Stream& stream) {
    auto* cuda = dynamic_cast<CudaStream*>(&stream);
    if (cuda == nullptr) {
        base::fail("stream " + stream.name() + " is not a CUDA stream");
    }
    return cuda->handle();
}

bool reached(cudaError_t answer, const std::string& attempted) {
    if (answer == cudaErrorNotReady) {
        return false;
    }
    check(answer, attempted);
    return true;
}

std::int64_t steady_now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void StreamCloser::operator()(cudaStream_t stream) const noexcept {
    tell(cudaStreamDestroy(stream), "destroy a stream");
}

void EventCloser::operator()(cudaEvent_t event) const noexcept {
    tell(cudaEventDestroy(event), "destroy an event");
}

OwnedEvent EventPool::take() {
    if (!spare_.empty()) {
        OwnedEvent event = std::move(spare_.back());
        spare_.pop_back();
        return event;
    }
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDefault), "create an event");
    return OwnedEvent(event);
}

EventClock::EventClock(EventPool& pool, cudaStream_t stream) {
    for (Mark& mark : ring_) {
        mark.event = pool.take();
    }
    check(cudaEventRecord(at(0).event.handle(), stream), "record the first time mark");
    check(cudaEventSynchronize(at(0).event.handle()), "wait for the first time mark");
    at(0).time_ns = steady_now_ns();
}

void EventClock::mark(cudaStream_t stream) {
    if (marks_ - known_ == std::ssize(ring_)) { // nobody has asked for times: keep the chain whole
        check(cudaEventSynchronize(at(known_ + 1).event.handle()), "wait for a time mark");
        know(known_ + 1);
    }
    check(cudaEventRecord(at(marks_).event.handle(), stream), "record a time mark");
    ++marks_;
}

void EventClock::know(std::int64_t mark) {
    for (; known_ < mark; ++known_) {
        at(known_ + 1).time_ns = at(known_).time_ns + ns_between(at(known_).event.handle(),
                                                                 at(known_ + 1).event.handle());
    }
}

// From the mark before the latest that there was when it was recorded: that one was reached before
// the event even if it is of another stream, since what is issued in a pass begins after the pass
// before it began. Every mark's own time is its distance from the one before.
std::int64_t EventClock::time_ns(cudaEvent_t event, std::int64_t marks_then) {
    const std::int64_t from = std::max<std::int64_t>(marks_then - 2, 0);
    if (marks_ - from > std::ssize(ring_)) {
        base::fail("the time of an event was asked for after its mark had gone");
    }
    know(from);
    return at(from).time_ns + ns_between(at(from).event.handle(), event);
}

void Gpu::wait_until(const std::function<bool()>& done) const {
    auto pause = 10us;
    while (!done()) {
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(320));
        look();
    }
    look();
}

void Gpu::look() const {
    std::erase_if(looks, [](const auto& look) { return look.expired(); });
    for (const auto& each : looks) {
        if (const auto look = each.lock()) {
            (*look)();
        }
    }
}

void CudaEvent::record(Stream& stream) {
    check(cudaEventRecord(event_.handle(), cuda_stream(stream)),
          "record an event on stream " + stream.name());
    marks_then_ = gpu_.clock->marks();
}

bool CudaEvent::done() const {
    return reached(cudaEventQuery(event_.handle()), "ask for an event");
}

void CudaEvent::wait_host() const {
    gpu_.wait_until([this] { return done(); });
}

std::int64_t CudaEvent::time_ns() const {
    if (marks_then_ == 0) {
        base::fail("the time of an event was asked for that was never recorded");
    }
    return gpu_.clock->time_ns(event_.handle(), marks_then_);
}

CudaStream::CudaStream(std::string name, int priority, Gpu& gpu)
    : Stream(std::move(name)), gpu_(gpu) {
    cudaStream_t stream = nullptr;
    // Not ordered with the legacy default stream, which nothing here uses but a library might.
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
          "create the stream " + this->name());
    stream_ = OwnedStream(stream);
    nvtxNameCudaStreamA(stream, this->name().c_str());
}

void CudaStream::wait(const Event& event) {
    check(cudaStreamWaitEvent(handle(), cuda_event(event, name()).handle(), cudaEventWaitDefault),
          "let stream " + name() + " wait for an event");
}

void CudaStream::sync() {
    gpu_.wait_until([this] {
        return reached(cudaStreamQuery(handle()), "run what is enqueued on stream " + name());
    });
}

} // namespace foregather::device
