// SPDX-License-Identifier: Apache-2.0
// Proves the checker: a right double-buffered pipeline has nothing to report, and each way to break
// it is reported, whatever the delays.
#include "doubles_test.hpp"

#include <cmath>

namespace foregather::emulation {
namespace {

constexpr std::size_t n = 256; // floats of a slot
constexpr int uses = 12;

enum class Fault { none, no_wait_gathered, no_wait_free, no_record_free, wrong_slot };

struct Pipeline {
    cudaStream_t compute = new_stream();
    cudaStream_t gather = new_stream();
    float* shards = new_floats(n * uses);
    float* arena = new_floats(2 * n); // both slots
    float* sums = new_floats(uses);
    cudaEvent_t gathered[2] = {new_event(), new_event()};
    cudaEvent_t slot_free[2] = {new_event(), new_event()};
    Fault fault = Fault::none;

    void fetch(int i) {
        const auto slot = static_cast<std::size_t>(i % 2);
        if (fault != Fault::no_wait_free) {
            EXPECT_EQ(cudaStreamWaitEvent(gather, slot_free[slot], 0), cudaSuccess);
        }
        EXPECT_EQ(cudaMemcpyAsync(arena + slot * n, shards + static_cast<std::size_t>(i) * n,
                                  n * sizeof(float), cudaMemcpyDeviceToDevice, gather),
                  cudaSuccess);
        EXPECT_EQ(cudaEventRecord(gathered[slot], gather), cudaSuccess);
    }

    void use(int i) {
        const auto slot = static_cast<std::size_t>(i % 2);
        if (fault != Fault::no_wait_gathered) {
            EXPECT_EQ(cudaStreamWaitEvent(compute, gathered[slot], 0), cudaSuccess);
        }
        const float* weights = arena + (fault == Fault::wrong_slot && i == 5 ? 1 - slot : slot) * n;
        float* sum = sums + i;
        EXPECT_EQ(enqueue_kernel("sum", compute, {reads(weights, n), writes(sum, 1)},
                                 [=] {
                                     *sum = 0;
                                     for (std::size_t k = 0; k < n; ++k) {
                                         *sum += weights[k];
                                     }
                                 }),
                  cudaSuccess);
        if (fault != Fault::no_record_free) {
            EXPECT_EQ(cudaEventRecord(slot_free[slot], compute), cudaSuccess);
        }
    }

    void run() {
        EXPECT_EQ(enqueue_kernel("fill", gather, {writes(shards, n * uses)},
                                 [to = shards] { std::fill_n(to, n * uses, 1.0f); }),
                  cudaSuccess);
        fetch(0);
        for (int i = 0; i < uses; ++i) {
            if (i + 1 < uses) {
                fetch(i + 1);
            }
            use(i);
        }
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
};

class Delays : public testing::TestWithParam<const char*> {
protected:
    Emulation emulation{Settings{{"FOREGATHER_EMULATION_DELAY_US", GetParam()}}};

    static std::int64_t races_of(Fault fault) {
        Pipeline pipeline;
        pipeline.fault = fault;
        pipeline.run();
        return counted("reports.RACE");
    }
};

TEST_P(Delays, ARightPipelineHasNothingToReport) {
    Pipeline pipeline;
    pipeline.run();
    float* results = new_pinned(uses);
    EXPECT_EQ(cudaMemcpyAsync(results, pipeline.sums, uses * sizeof(float), cudaMemcpyDeviceToHost,
                              pipeline.compute),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(pipeline.compute), cudaSuccess);
    for (int i = 0; i < uses; ++i) {
        EXPECT_EQ(results[i], static_cast<float>(n));
    }
    EXPECT_EQ(counted("reports"), 0);
    EXPECT_EQ(counted("copies.device_to_device"), uses);
}

// Each use reads what another stream gathers, and each gather but the first two overwrites what
// another stream reads: so many reports, not more and not fewer.
TEST_P(Delays, EachMissingWaitIsReported) { EXPECT_EQ(races_of(Fault::no_wait_gathered), uses); }

TEST_P(Delays, EachSlotOverwrittenTooEarlyIsReported) {
    EXPECT_EQ(races_of(Fault::no_wait_free), uses - 2);
}

TEST_P(Delays, AMissingRecordIsReported) { EXPECT_EQ(races_of(Fault::no_record_free), uses - 2); }

TEST_P(Delays, TheWrongSlotIsReported) { EXPECT_GT(races_of(Fault::wrong_slot), 0); }

INSTANTIATE_TEST_SUITE_P(Us, Delays, testing::Values("0", "200"));

TEST(Checker, OrdersByWhatTheHostSaw) {
    const Emulation one;
    const cudaStream_t a = new_stream();
    const cudaStream_t b = new_stream();
    float* data = new_floats(4);
    const cudaEvent_t event = new_event();
    const auto write = [&](cudaStream_t on) {
        return enqueue_kernel("write", on, {writes(data, 4)}, [] {});
    };
    EXPECT_EQ(write(a), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess);
    EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(write(b), cudaSuccess); // the host knew
    EXPECT_EQ(counted("reports"), 0);
    while (cudaStreamQuery(b) != cudaSuccess) {
    }
    EXPECT_EQ(write(a), cudaSuccess);
    EXPECT_EQ(counted("reports"), 0);
    sleep_ms(5); // a has surely run, but nobody asked
    EXPECT_EQ(write(b), cudaSuccess);
    EXPECT_EQ(counted("reports.RACE"), 1);
}

TEST(Checker, LooksAtExactBytes) {
    const Emulation one;
    const cudaStream_t a = new_stream();
    const cudaStream_t b = new_stream();
    float* data = new_floats(8);
    EXPECT_EQ(enqueue_kernel("left", a, {writes(data, 4)}, [] {}), cudaSuccess);
    EXPECT_EQ(enqueue_kernel("right", b, {writes(data + 4, 4)}, [] {}), cudaSuccess);
    EXPECT_EQ(counted("reports"), 0);
    EXPECT_EQ(enqueue_kernel("one", b, {reads(data + 3, 1)}, [] {}), cudaSuccess);
    EXPECT_EQ(counted("reports.RACE"), 1);
    EXPECT_EQ(enqueue_kernel("reader", a, {reads(data, 4)}, [] {}), cudaSuccess);
    EXPECT_EQ(counted("reports.RACE"), 1) << "two that read do not conflict";
    float* whole = new_floats(8);
    EXPECT_EQ(enqueue_kernel("whole", a, {writes(whole, 8)}, [] {}), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    EXPECT_EQ(enqueue_kernel("first", b, {reads(whole, 1)}, [] {}), cudaSuccess);
    EXPECT_EQ(enqueue_kernel("others", a, {writes(whole + 1, 7)}, [] {}), cudaSuccess);
    EXPECT_EQ(counted("reports.RACE"), 1) << "the bytes beside those that were read are free";
}

TEST(Checker, AnEventOrdersWhatWasBeforeItAlone) {
    const Emulation one;
    const cudaStream_t a = new_stream();
    const cudaStream_t b = new_stream();
    float* data = new_floats(4);
    const cudaEvent_t event = new_event();
    EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess); // too early
    EXPECT_EQ(enqueue_kernel("write", a, {writes(data, 4)}, [] {}), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    EXPECT_EQ(enqueue_kernel("read", b, {reads(data, 4)}, [] {}), cudaSuccess);
    EXPECT_EQ(counted("reports.RACE"), 1);
}

TEST(Checker, ReportsMemoryThatMayNotBeTouched) {
    for (const int beyond : {0, 1}) {
        const Emulation one;
        const cudaStream_t stream = new_stream();
        float* data = new_floats(4);
        if (beyond == 0) {
            EXPECT_EQ(cudaFree(data), cudaSuccess);
        }
        EXPECT_EQ(enqueue_kernel("write", stream, {writes(data, beyond == 1 ? 5 : 4)}, [] {}),
                  cudaErrorIllegalAddress);
        EXPECT_EQ(counted("reports.BAD_RANGE"), 1);
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    }
}

TEST(Checker, ReportsAFreeInUse) {
    const Emulation one;
    const cudaStream_t stream = new_stream();
    float* data = new_floats(4);
    EXPECT_EQ(enqueue_kernel("write", stream, {writes(data, 4)}, [=] { data[3] = 1; }),
              cudaSuccess);
    EXPECT_EQ(cudaFree(data), cudaSuccess);
    EXPECT_EQ(counted("reports.FREE_IN_USE"), 1);
    EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
    EXPECT_EQ(counted("reports.BAD_FREE"), 1);
}

TEST(Checker, ReportsPageableMemoryAndTheDefaultStream) {
    const Emulation one;
    const cudaStream_t stream = new_stream();
    float* data = new_floats(4);
    std::vector<float> pageable(4, 1.0f);
    EXPECT_EQ(cudaMemcpyAsync(data, pageable.data(), 16, cudaMemcpyHostToDevice, stream),
              cudaSuccess);
    EXPECT_EQ(counted("reports.PAGEABLE"), 1);
    EXPECT_EQ(cudaMemsetAsync(data, 0, 16, nullptr), cudaSuccess);
    EXPECT_EQ(counted("reports.DEFAULT_STREAM"), 1);
    EXPECT_EQ(counted("reports.RACE"), 0) << "the copy was over";
    EXPECT_EQ(cudaMemset(data, 0, 16), cudaSuccess);
    EXPECT_EQ(counted("reports.DEFAULT_STREAM"), 2);
    EXPECT_EQ(enqueue_kernel("read", stream, {reads(data, 4)}, [] {}), cudaSuccess);
    EXPECT_EQ(counted("reports.RACE"), 1) << "non-blocking streams do not wait for the default one";
}

TEST(Checker, ReportsAHostThatWritesUnderACopy) {
    const Emulation one;
    const cudaStream_t stream = new_stream();
    float* data = new_floats(4);
    float* host = new_pinned(4);
    host[0] = 1;
    const auto hold = [] { sleep_ms(20); };
    EXPECT_EQ(enqueue_kernel("hold", stream, {}, hold), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(data, host, 16, cudaMemcpyHostToDevice, stream), cudaSuccess);
    host[0] = 2; // too early
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(counted("reports.HOST_WRITE"), 1);
    host[0] = 3; // in time
    EXPECT_EQ(enqueue_kernel("hold", stream, {}, hold), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(host, data, 16, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    EXPECT_TRUE(std::isnan(host[0])) << "who reads early reads NaN";
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(host[0], 2.0f);
    EXPECT_EQ(counted("reports"), 1);
}

TEST(Checker, LeavesAloneABufferThatTravelsBothWays) {
    const Emulation one(Settings{{"FOREGATHER_EMULATION_DELAY_US", "500"}});
    const cudaStream_t stream = new_stream();
    float* data = new_floats(4);
    float* host = new_pinned(4);
    host[0] = 5;
    EXPECT_EQ(cudaMemcpyAsync(data, host, 16, cudaMemcpyHostToDevice, stream), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(host, data, 16, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(data, host, 16, cudaMemcpyHostToDevice, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(host[0], 5.0f);
    EXPECT_EQ(counted("reports"), 0);
}

TEST(Checker, StaysFastOverThousandsOfOperations) {
    const Emulation one;
    const cudaStream_t stream = new_stream();
    float* data = new_floats(4096);
    for (std::size_t i = 0; i < 20000; ++i) {
        const std::size_t at = i * 37 % 4000;
        ASSERT_EQ(enqueue_kernel("piece", stream, {writes(data + at, 64), reads(data, 1)}, [] {}),
                  cudaSuccess);
    }
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_LT(counted("checker.intervals"), 1000);
    EXPECT_EQ(counted("reports"), 0);
}

TEST(Checker, EndsTheProcessIfStrict) {
    GTEST_FLAG_SET(death_test_style, "threadsafe"); // a fork would lose the workers
    const Emulation one(Settings{{"FOREGATHER_EMULATION_STRICT", "1"}});
    EXPECT_EXIT(cudaMemsetAsync(nullptr, 0, 1, nullptr), testing::ExitedWithCode(97),
                "emulation: DEFAULT_STREAM");
}

} // namespace
} // namespace foregather::emulation
