// SPDX-License-Identifier: Apache-2.0
// The host device's moving parts: a fault that all streams share, events, workers and their
// helpers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <foregather/device/device.hpp>
#include <foregather/device/host_stream.hpp>

namespace foregather::device {

std::int64_t host_now_ns();

// The first exception of any stream of a device. Once raised, all queues drain without running and
// every wait ends, so that nothing hangs on work that will never come.
class Fault {
public:
    void raise(std::exception_ptr cause);
    bool raised() const { return raised_.load(std::memory_order_acquire); }
    void rethrow_if_raised() const;

private:
    mutable std::mutex mutex_;
    std::atomic<bool> raised_ = false;
    std::exception_ptr cause_;
};

// Of Device::look_while_waiting(). Used by the thread that enqueues alone.
using Looks = std::vector<std::weak_ptr<Device::Look>>;

class HostEvent final : public Event {
public:
    HostEvent(std::shared_ptr<Fault> fault, std::shared_ptr<Looks> looks);
    void record(Stream& stream) override;
    bool done() const override;
    void wait_host() const override;
    std::int64_t time_ns() const override;

    // A closure that blocks its worker until the record that is the latest now is reached.
    std::function<void()> waiter() const;

private:
    struct State {
        std::mutex mutex;
        std::condition_variable reached_more;
        std::int64_t reached = 0; // records reached so far
        std::int64_t time_ns = 0; // of the latest
    };
    static void wait_for(State& state, std::int64_t record, const Fault& fault,
                         const std::function<void()>& look = {});

    std::shared_ptr<Fault> fault_;
    std::shared_ptr<Looks> looks_;
    std::shared_ptr<State> state_; // shared with closures that may outlive the event
    std::int64_t recorded_ = 0;    // records enqueued so far, by the enqueuing thread
};

// Helpers that share the blocks of one parallel region at a time.
class Team {
public:
    explicit Team(int helpers);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;
    void run(std::int64_t blocks, const std::function<void(std::int64_t, int)>& body);
    int size() const { return static_cast<int>(helpers_.size()) + 1; }
    int seen() const;

private:
    void help(int thread);
    void take_blocks(int thread);

    std::mutex mutex_;
    std::condition_variable begun_, ended_;
    std::int64_t region_ = 0; // number of the current parallel region
    int busy_ = 0;            // helpers still in it
    bool stopping_ = false;
    std::atomic<std::int64_t> next_ = 0;
    std::int64_t blocks_ = 0;
    const std::function<void(std::int64_t, int)>* body_ = nullptr;
    std::exception_ptr failure_;
    std::vector<std::atomic<bool>> took_a_block_;
    std::vector<std::thread> helpers_; // last: they use all of the above
};

class Worker final : public HostStream {
public:
    Worker(std::string name, int threads, std::shared_ptr<Fault> fault);
    ~Worker() override; // drains the queue, then joins

    void wait(const Event& event) override;
    void sync() override;
    void enqueue(std::function<void()> work) override;
    void parallel(std::int64_t blocks, const std::function<void(std::int64_t, int)>& body) override;
    int threads() const override { return team_.size(); }
    int threads_seen() const override { return team_.seen(); }

private:
    void run();

    std::shared_ptr<Fault> fault_;
    Team team_;
    std::mutex mutex_;
    std::condition_variable more_, empty_;
    std::deque<std::function<void()>> queue_;
    bool running_ = false; // a closure is being run
    bool stopping_ = false;
    std::thread thread_; // last: it uses all of the above
};

} // namespace foregather::device
