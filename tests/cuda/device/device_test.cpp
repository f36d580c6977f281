// SPDX-License-Identifier: Apache-2.0
// The CUDA device on the double of its runtime: memory, order of streams, events and their times.
#include <foregather/device/cuda_device.hpp>

#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/device/cuda_stream.hpp>

#include "../../cuda_emulation/doubles_test.hpp"

namespace foregather::device {
namespace {

class CudaDeviceTest : public testing::Test {
protected:
    emulation::Emulation emulation_{{{"FOREGATHER_EMULATION_GPUS", "2"}}}; // outlives what is on it
    std::unique_ptr<Device> device_ = make_cuda_device(0);
};

TEST(GpuOfARank, IsItsLocalRankOrTheOneThatItSees) {
    EXPECT_EQ(gpu_of(0, 1), 0);
    EXPECT_EQ(gpu_of(3, 1), 0);
    EXPECT_EQ(gpu_of(3, 4), 3);
    EXPECT_EQ(gpu_of(2, 4), 2);
    EXPECT_EQ(gpu_of(4, 4), -1);
    EXPECT_EQ(gpu_of(0, 2), 0);
    EXPECT_EQ(gpu_of(2, 2), -1);
}

TEST(CompiledCode, RunsOnItsGenerationAndAsPtxOnAllLaterOnes) {
    const std::vector<int> archs = {80, 90};
    for (const int capability : {80, 86, 89, 90, 100, 120}) {
        EXPECT_TRUE(code_runs(archs, capability)) << capability;
    }
    for (const int capability : {60, 70, 75}) {
        EXPECT_FALSE(code_runs(archs, capability)) << capability;
    }
    EXPECT_FALSE(code_runs({86}, 80)) << "an earlier one of its generation";
}

TEST_F(CudaDeviceTest, TellsWhatItIs) {
    const Facts facts = device_->facts();
    EXPECT_EQ(facts.kind, "cuda");
    EXPECT_FALSE(facts.name.empty());
    EXPECT_GT(facts.memory.count, 0);
    EXPECT_EQ(facts.address, gpu_address(0));
    EXPECT_NE(gpu_address(0), gpu_address(1));
    EXPECT_NE(facts.address.find(" GPU-"), std::string::npos);
    EXPECT_FALSE(device_->host_memory());
}

TEST_F(CudaDeviceTest, FreshMemoryIsNotZeroAndCopiesBringBytesThereAndBack) {
    constexpr base::Elements n = 1000;
    const HostBuffer<float> in(*device_, n, "input"), out(*device_, n, "output");
    const Buffer<float> there(*device_, n, "the middle");
    std::iota(in.view().begin(), in.view().end(), 1.0F);
    const auto stream = device_->stream("compute", Priority::normal);
    device_->copy_out(base::View<const float>(there.view()), out.view(), *stream);
    stream->sync();
    EXPECT_TRUE(std::isnan(out.view()[7]));
    device_->copy_in(base::View<const float>(in.view()), there.view(), *stream);
    device_->copy_out(base::View<const float>(there.view()), out.view(), *stream);
    stream->sync();
    EXPECT_TRUE(std::equal(in.view().begin(), in.view().end(), out.view().begin()));
    EXPECT_EQ(device_->allocations(), 3);
    EXPECT_EQ(device_->allocated().count, n * 4) << "host memory is not the device's";
}

TEST_F(CudaDeviceTest, OutOfMemoryNamesSizeAndPurposeAndTheDeviceGoesOn) {
    try {
        const auto memory = device_->allocate({std::int64_t{1} << 50}, "a very large arena");
        FAIL() << "a PiB was allocated";
    } catch (const base::Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("a very large arena"), std::string::npos) << text;
        EXPECT_NE(text.find("1125899906842624 bytes"), std::string::npos) << text;
    }
    EXPECT_EQ(device_->allocate({64}, "a small one")->size().count, 64);
}

TEST_F(CudaDeviceTest, AStreamWaitsForTheRecordThatWasTheLatestWhenItWasToldTo) {
    const auto first = device_->stream("gather", Priority::high);
    const auto second = device_->stream("compute", Priority::normal);
    const auto slow = [](void* flag) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        *static_cast<bool*>(flag) = true;
    };
    bool done = false, seen = false;
    std::pair<bool*, bool*> both{&done, &seen};
    const auto reached = device_->event();
    EXPECT_TRUE(reached->done()) << "never recorded";
    EXPECT_THROW(reached->time_ns(), base::Error);
    check(cudaLaunchHostFunc(cuda_stream(*first), slow, &done), "enqueue a slow function");
    reached->record(*first);
    EXPECT_FALSE(reached->done());
    second->wait(*reached);
    check(cudaLaunchHostFunc(
              cuda_stream(*second),
              [](void* pair) {
                  auto& [from, to] = *static_cast<std::pair<bool*, bool*>*>(pair);
                  *to = *from;
              },
              &both),
          "enqueue a look");
    second->sync();
    EXPECT_TRUE(seen);
    EXPECT_TRUE(reached->done());
    first->sync();
}

TEST_F(CudaDeviceTest, TimesOfEventsAreOfTheHostsClockOverManyMarks) {
    const auto stream = device_->stream("compute", Priority::normal);
    const auto begin = device_->event(), end = device_->event();
    std::int64_t last = device_->now_ns();
    for (int pass = 0; pass < 12; ++pass) {
        device_->mark_time(*stream);
        const std::int64_t before = device_->now_ns();
        begin->record(*stream);
        check(cudaLaunchHostFunc(
                  cuda_stream(*stream),
                  [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); },
                  nullptr),
              "enqueue a slow function");
        end->record(*stream);
        end->wait_host();
        const std::int64_t after = device_->now_ns();
        EXPECT_GE(begin->time_ns(), last) << pass;
        EXPECT_GE(end->time_ns() - begin->time_ns(), 1'900'000) << pass;
        EXPECT_NEAR(static_cast<double>(end->time_ns()), static_cast<double>(after), 20e6);
        EXPECT_GT(begin->time_ns(), before - 5'000'000);
        last = end->time_ns();
    }
}

TEST_F(CudaDeviceTest, MarksThatNobodyReadDoNotBreakTheClock) {
    const auto stream = device_->stream("compute", Priority::normal);
    for (int pass = 0; pass < 9; ++pass) {
        device_->mark_time(*stream);
    }
    const auto event = device_->event();
    event->record(*stream);
    event->wait_host();
    EXPECT_NEAR(static_cast<double>(event->time_ns()), static_cast<double>(device_->now_ns()),
                50e6);
}

TEST_F(CudaDeviceTest, WhoeverWaitsLooksForErrors) {
    int looked = 0;
    auto look = std::make_shared<Device::Look>([&] {
        if (++looked == 3) {
            base::fail("what was looked for");
        }
    });
    device_->look_while_waiting(look);
    const auto stream = device_->stream("compute", Priority::normal);
    stream->sync();
    EXPECT_EQ(looked, 1) << "once even where there is nothing to wait for";
    check(cudaLaunchHostFunc(
              cuda_stream(*stream),
              [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }, nullptr),
          "enqueue a slow function");
    EXPECT_THROW(stream->sync(), base::Error);
    look.reset();
    looked = 100;
    stream->sync();
    EXPECT_EQ(looked, 100) << "whoever has gone does not look";
}

TEST_F(CudaDeviceTest, StreamsAndEventsOfAnotherDeviceAreRefused) {
    class OtherEvent final : public Event {
        void record(Stream&) override {}
        bool done() const override { return true; }
        void wait_host() const override {}
        std::int64_t time_ns() const override { return 0; }
    };
    class OtherStream final : public Stream {
    public:
        OtherStream() : Stream("other") {}
        void wait(const Event&) override {}
        void sync() override {}
    };
    OtherStream other;
    EXPECT_THROW(cuda_stream(other), base::Error);
    const auto stream = device_->stream("compute", Priority::normal);
    const OtherEvent event;
    EXPECT_THROW(stream->wait(event), base::Error);
    EXPECT_THROW(device_->event()->record(other), base::Error);
}

} // namespace
} // namespace foregather::device
