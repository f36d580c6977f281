// SPDX-License-Identifier: Apache-2.0
// Host streams run in order, events order them across streams and carry times, and an exception in
// a closure ends every wait. The parallel regions inside closures are in parallel_test.cpp.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/device/host_stream.hpp>

using namespace foregather;
using namespace std::chrono_literals;
using device::Priority;

namespace {

class StreamTest : public testing::Test {
protected:
    void enqueue(device::Stream& stream, std::function<void()> work) {
        device::host_stream(stream).enqueue(std::move(work));
    }
    // Runs `work` and returns what it threw, or "" if nothing.
    static std::string thrown_by(const std::function<void()>& work) {
        try {
            work();
        } catch (const base::Error& error) {
            return error.what();
        }
        return "";
    }

    std::unique_ptr<device::Device> device_ = device::make_host_device(1);
    std::unique_ptr<device::Stream> compute_ = device_->stream("compute", Priority::normal);
    std::unique_ptr<device::Stream> gather_ = device_->stream("gather", Priority::high);
};

} // namespace

TEST_F(StreamTest, closures_run_in_the_order_they_were_enqueued) {
    std::vector<int> order;
    for (int i = 0; i < 2000; ++i) {
        enqueue(*compute_, [&order, i] { order.push_back(i); });
    }
    compute_->sync();
    ASSERT_EQ(order.size(), 2000U);
    for (int i = 0; i < 2000; ++i) {
        ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
    }
}

TEST_F(StreamTest, enqueuing_and_recording_do_not_wait_for_the_work) {
    std::promise<void> go;
    std::atomic<bool> ran = false;
    enqueue(*compute_, [&] { go.get_future().wait(); });
    enqueue(*compute_, [&] { ran = true; });
    const auto event = device_->event();
    event->record(*compute_);
    EXPECT_FALSE(ran);
    EXPECT_FALSE(event->done());
    go.set_value();
    event->wait_host();
    EXPECT_TRUE(ran);
    EXPECT_TRUE(event->done());
    compute_->sync();
}

TEST_F(StreamTest, streams_run_at_the_same_time) {
    std::promise<void> from_gather;
    std::future_status met = std::future_status::timeout;
    enqueue(*compute_, [&] { met = from_gather.get_future().wait_for(10s); });
    enqueue(*gather_, [&] { from_gather.set_value(); });
    compute_->sync();
    gather_->sync();
    EXPECT_EQ(met, std::future_status::ready);
}

TEST_F(StreamTest, a_stream_waits_for_an_event_of_another) {
    bool written = false; // ordered by the event alone
    bool seen = false;
    const auto event = device_->event();
    enqueue(*gather_, [&] {
        std::this_thread::sleep_for(20ms);
        written = true;
    });
    event->record(*gather_);
    compute_->wait(*event);
    enqueue(*compute_, [&] { seen = written; });
    compute_->sync();
    EXPECT_TRUE(seen);
}

TEST_F(StreamTest, events_order_a_long_exchange_between_two_streams) {
    constexpr int rounds = 500;
    std::vector<int> order;
    const auto ping = device_->event();
    const auto pong = device_->event();
    for (int i = 0; i < rounds; ++i) { // the same two events, recorded again each round
        enqueue(*compute_, [&order, i] { order.push_back(2 * i); });
        ping->record(*compute_);
        gather_->wait(*ping);
        enqueue(*gather_, [&order, i] { order.push_back(2 * i + 1); });
        pong->record(*gather_);
        compute_->wait(*pong);
    }
    compute_->sync();
    gather_->sync();
    ASSERT_EQ(order.size(), 2U * rounds);
    for (int i = 0; i < 2 * rounds; ++i) {
        ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
    }
}

TEST_F(StreamTest, a_wait_is_for_the_record_that_is_the_latest_when_it_is_enqueued) {
    std::promise<void> go;
    std::promise<void> passed;
    const auto event = device_->event();
    event->record(*gather_);
    compute_->wait(*event);
    enqueue(*compute_, [&] { passed.set_value(); });
    enqueue(*gather_, [&] { go.get_future().wait(); });
    event->record(*gather_); // later than the wait, and held back
    EXPECT_EQ(passed.get_future().wait_for(10s), std::future_status::ready);
    EXPECT_FALSE(event->done());
    go.set_value();
    gather_->sync();
}

TEST_F(StreamTest, an_event_that_was_never_recorded_counts_as_done_and_has_no_time) {
    const auto event = device_->event();
    EXPECT_TRUE(event->done());
    EXPECT_THROW(event->time_ns(), base::Error);
    event->wait_host();
    compute_->wait(*event);
    compute_->sync();
}

TEST_F(StreamTest, time_stamps_ascend_on_the_clock_of_the_device) {
    const auto first = device_->event();
    const auto second = device_->event();
    const std::int64_t before = device_->now_ns();
    first->record(*compute_);
    enqueue(*compute_, [] { std::this_thread::sleep_for(5ms); });
    second->record(*compute_);
    compute_->sync();
    const std::int64_t after = device_->now_ns();
    EXPECT_LE(before, first->time_ns());
    EXPECT_GE(second->time_ns() - first->time_ns(), 5'000'000);
    EXPECT_LE(second->time_ns(), after);
}

TEST_F(StreamTest, an_event_of_the_waiting_stream_is_not_earlier_than_what_it_waited_for) {
    const auto end_of_compute = device_->event();
    const auto begin_of_gather = device_->event();
    for (int i = 0; i < 200; ++i) {
        enqueue(*compute_, [] { std::this_thread::sleep_for(10us); });
        end_of_compute->record(*compute_);
        gather_->wait(*end_of_compute);
        begin_of_gather->record(*gather_);
        gather_->sync();
        ASSERT_GE(begin_of_gather->time_ns(), end_of_compute->time_ns());
    }
}

TEST_F(StreamTest, an_exception_reaches_sync_and_what_was_queued_behind_it_does_not_run) {
    bool ran = false;
    enqueue(*compute_, [] { base::fail("the kernel broke"); });
    enqueue(*compute_, [&] { ran = true; });
    EXPECT_EQ(thrown_by([&] { compute_->sync(); }), "the kernel broke");
    EXPECT_FALSE(ran);
    EXPECT_EQ(thrown_by([&] { compute_->sync(); }), "the kernel broke")
        << "again to whoever asks again";
}

TEST_F(StreamTest, an_exception_ends_the_waits_of_all_streams_within_a_second) {
    const auto never = device_->event();
    std::promise<void> go;
    enqueue(*compute_, [&] {
        go.get_future().wait();
        base::fail("the kernel broke");
    });
    never->record(*compute_); // behind the exception: never reached
    gather_->wait(*never);
    bool ran = false;
    enqueue(*gather_, [&] { ran = true; });
    const auto begin = std::chrono::steady_clock::now();
    go.set_value();
    EXPECT_EQ(thrown_by([&] { never->wait_host(); }), "the kernel broke");
    EXPECT_EQ(thrown_by([&] { gather_->sync(); }), "the kernel broke");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
    EXPECT_FALSE(ran);
    EXPECT_FALSE(never->done());
}

TEST_F(StreamTest, the_first_of_two_exceptions_is_the_one_that_is_told) {
    enqueue(*compute_, [] { base::fail("first"); });
    EXPECT_EQ(thrown_by([&] { compute_->sync(); }), "first");
    enqueue(*gather_, [] { base::fail("second"); });
    EXPECT_EQ(thrown_by([&] { gather_->sync(); }), "first");
}

TEST_F(StreamTest, what_was_reached_before_an_exception_still_counts_as_reached) {
    const auto event = device_->event();
    event->record(*compute_);
    enqueue(*compute_, [] { base::fail("later"); });
    EXPECT_EQ(thrown_by([&] { compute_->sync(); }), "later");
    EXPECT_TRUE(event->done());
}

TEST_F(StreamTest, a_stream_that_goes_runs_its_queue_first) {
    std::atomic<int> ran = 0;
    const auto event = device_->event();
    for (int i = 0; i < 20; ++i) {
        enqueue(*gather_, [&] {
            std::this_thread::sleep_for(1ms);
            ++ran;
        });
    }
    event->record(*gather_);
    compute_->wait(*event);
    enqueue(*compute_, [&] { ++ran; });
    compute_.reset(); // waits for the other stream's work too
    EXPECT_EQ(ran, 21);
    gather_.reset();
}

TEST_F(StreamTest, closures_may_outlive_the_events_they_record_and_the_device) {
    std::promise<void> go;
    enqueue(*gather_, [&] { go.get_future().wait(); });
    {
        const auto event = device_->event();
        event->record(*gather_);
        compute_->wait(*event);
    }
    device_.reset();
    go.set_value();
    compute_->sync();
    gather_->sync();
}

TEST_F(StreamTest, a_stream_that_has_failed_still_goes) {
    enqueue(*compute_, [] { base::fail("the kernel broke"); });
    const auto never = device_->event();
    never->record(*compute_);
    gather_->wait(*never);
    gather_.reset();
    compute_.reset();
}

TEST_F(StreamTest, a_foreign_event_or_stream_is_refused) {
    class Foreign final : public device::Event {
        void record(device::Stream&) override {}
        bool done() const override { return true; }
        void wait_host() const override {}
        std::int64_t time_ns() const override { return 0; }
    };
    class Other final : public device::Stream {
    public:
        using Stream::Stream;
        void wait(const device::Event&) override {}
        void sync() override {}
    };
    Other other("other");
    EXPECT_THROW(compute_->wait(Foreign()), base::Error);
    EXPECT_THROW(device::host_stream(other), base::Error);
    EXPECT_EQ(compute_->name(), "compute");
}
