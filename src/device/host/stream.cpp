// SPDX-License-Identifier: Apache-2.0
// Streams as worker threads with in-order queues, and events as flags with the worker's time.
#include <chrono>
#include <functional>

#include <foregather/base/error.hpp>
#include <foregather/base/moves.hpp>

#include "worker.hpp"

namespace foregather::device {

using namespace std::chrono_literals;

std::int64_t host_now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

HostStream& host_stream(Stream& stream) {
    auto* host = dynamic_cast<HostStream*>(&stream);
    if (host == nullptr) {
        base::fail("stream " + stream.name() + " is not a host stream");
    }
    return *host;
}

void Fault::raise(std::exception_ptr cause) {
    const std::lock_guard lock(mutex_);
    if (!cause_) {
        cause_ = std::move(cause);
        raised_.store(true, std::memory_order_release);
    }
}

void Fault::rethrow_if_raised() const {
    if (raised()) {
        const std::lock_guard lock(mutex_);
        std::rethrow_exception(cause_);
    }
}

HostEvent::HostEvent(std::shared_ptr<Fault> fault, std::shared_ptr<Looks> looks)
    : fault_(std::move(fault)), looks_(std::move(looks)), state_(std::make_shared<State>()) {}

void HostEvent::record(Stream& stream) {
    host_stream(stream).enqueue([state = state_, record = ++recorded_] {
        const std::lock_guard lock(state->mutex);
        state->reached = record;
        state->time_ns = host_now_ns();
        state->reached_more.notify_all();
    });
}

bool HostEvent::done() const {
    const std::lock_guard lock(state_->mutex);
    return state_->reached >= recorded_;
}

std::int64_t HostEvent::time_ns() const {
    const std::lock_guard lock(state_->mutex);
    if (recorded_ == 0 || state_->reached < recorded_) {
        base::fail("the time of an event was asked for that was never recorded, or not reached");
    }
    return state_->time_ns;
}

void HostEvent::wait_for(State& state, std::int64_t record, const Fault& fault,
                         const std::function<void()>& look) {
    std::unique_lock lock(state.mutex);
    // A failed stream never reaches its records: look for a fault now and then.
    while (!state.reached_more.wait_for(lock, 50ms, [&] { return state.reached >= record; })) {
        if (fault.raised()) {
            return;
        }
        if (look) {
            lock.unlock(); // it may ask for this very event
            look();
            lock.lock();
        }
    }
}

void HostEvent::wait_host() const {
    wait_for(*state_, recorded_, *fault_, [this] {
        std::erase_if(*looks_, [](const auto& look) { return look.expired(); });
        for (const auto& each : *looks_) {
            if (const auto look = each.lock()) {
                (*look)();
            }
        }
    });
    fault_->rethrow_if_raised();
}

std::function<void()> HostEvent::waiter() const {
    return
        [state = state_, record = recorded_, fault = fault_] { wait_for(*state, record, *fault); };
}

Worker::Worker(std::string name, int threads, std::shared_ptr<Fault> fault)
    : HostStream(std::move(name)), fault_(std::move(fault)), team_(threads - 1),
      thread_([this] { run(); }) {}

Worker::~Worker() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    more_.notify_all();
    thread_.join();
}

void Worker::enqueue(std::function<void()> work) {
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(work));
    }
    more_.notify_one();
}

void Worker::wait(const Event& event) {
    const auto* host = dynamic_cast<const HostEvent*>(&event);
    if (host == nullptr) {
        base::fail("stream " + name() + " was told to wait for an event of another device");
    }
    enqueue(host->waiter());
}

void Worker::sync() {
    std::unique_lock lock(mutex_);
    empty_.wait(lock, [&] { return queue_.empty() && !running_; });
    lock.unlock();
    fault_->rethrow_if_raised();
}

void Worker::parallel(std::int64_t blocks, const std::function<void(std::int64_t, int)>& body) {
    team_.run(blocks, body);
}

void Worker::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        more_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) {
            return;
        }
        auto work = std::move(queue_.front());
        queue_.pop_front();
        running_ = true;
        lock.unlock();
        if (!fault_->raised()) {
            try {
                work();
            } catch (const std::exception&) {
                fault_->raise(std::current_exception());
            }
        }
        work = nullptr; // what it holds goes before the queue is called empty
        base::moved();
        lock.lock();
        running_ = false;
        if (queue_.empty()) {
            empty_.notify_all();
        }
    }
}

} // namespace foregather::device
