// SPDX-License-Identifier: Apache-2.0
// Pins the test double of the CUDA runtime to what the runtime's documentation says.
#include "doubles_test.hpp"

#include <atomic>
#include <cmath>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace foregather::emulation {
namespace {

TEST(Devices, NoneUnlessAskedFor) {
    const Emulation none(Settings{{"FOREGATHER_EMULATION_GPUS", "0"}});
    int n = -1;
    EXPECT_EQ(cudaGetDeviceCount(&n), cudaErrorNoDevice);
    EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
}

TEST(Devices, WithoutDriverTheVersionIsZero) {
    const Emulation none(Settings{{"FOREGATHER_EMULATION_GPUS", "none"}});
    int n = -1;
    EXPECT_EQ(cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
    EXPECT_EQ(n, -1);
    EXPECT_EQ(cudaDriverGetVersion(&n), cudaSuccess);
    EXPECT_EQ(n, 0);
    EXPECT_EQ(cudaRuntimeGetVersion(&n), cudaSuccess);
    EXPECT_EQ(n, 13000);
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, 4), cudaErrorInsufficientDriver);
}

std::string bus_of(int device) {
    char id[32] = "";
    EXPECT_EQ(cudaDeviceGetPCIBusId(id, sizeof id, device), cudaSuccess);
    return id;
}

TEST(Devices, VisibleOnesAreASelectionInTheGivenOrder) {
    std::string second;
    cudaDeviceProp property{};
    {
        const Emulation all(Settings{{"FOREGATHER_EMULATION_GPUS", "3"}});
        second = bus_of(1);
        ASSERT_EQ(cudaGetDeviceProperties(&property, 1), cudaSuccess);
    }
    const Emulation some(
        Settings{{"FOREGATHER_EMULATION_GPUS", "3"}, {"CUDA_VISIBLE_DEVICES", "2,1,7,0"}});
    int n = 0;
    EXPECT_EQ(cudaGetDeviceCount(&n), cudaSuccess);
    EXPECT_EQ(n, 2) << "the list ends at the first device that does not exist";
    EXPECT_EQ(bus_of(1), second);
    EXPECT_NE(bus_of(0), second);
    cudaDeviceProp same{};
    ASSERT_EQ(cudaGetDeviceProperties(&same, 1), cudaSuccess);
    EXPECT_EQ(std::memcmp(&same.uuid, &property.uuid, sizeof same.uuid), 0);
    EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
}

TEST(Devices, PeersCanBeForbidden) {
    const Emulation two(
        Settings{{"FOREGATHER_EMULATION_GPUS", "2"}, {"FOREGATHER_EMULATION_PEERS", "0"}});
    int can = -1;
    EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 0, 1), cudaSuccess);
    EXPECT_EQ(can, 0);
}

TEST(Memory, FreshIsNaNAndTheLimitHolds) {
    const Emulation one(Settings{{"FOREGATHER_EMULATION_MEMORY", "4096"}});
    float* device = new_floats(512);
    float* host = new_pinned(512);
    void* more = nullptr;
    EXPECT_EQ(cudaMalloc(&more, 2049), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    EXPECT_EQ(free, 2048u);
    EXPECT_EQ(total, 4096u);
    host[3] = 1;
    const cudaStream_t stream = new_stream();
    EXPECT_EQ(cudaMemcpyAsync(host, device, 2048, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_TRUE(std::isnan(host[3]));
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, device + 1), cudaSuccess);
    EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, &free), cudaSuccess);
    EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
    EXPECT_EQ(cudaFree(device), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
    EXPECT_EQ(counted("reports"), 0);
}

TEST(Streams, AreInOrderAndConcurrent) {
    const Emulation one(Settings{{"FOREGATHER_EMULATION_DELAY_US", "300"}});
    const cudaStream_t a = new_stream();
    const cudaStream_t b = new_stream();
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(enqueue_kernel("number", a, {}, [&order, i] { order.push_back(i); }),
                  cudaSuccess);
    }
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(order.at(static_cast<std::size_t>(i)), i);
    }
    // Each waits for the other: neither would end if streams ran one after the other.
    std::atomic<int> there{0};
    const auto meet = [&there] {
        for (++there; there < 2;) {
            std::this_thread::yield();
        }
    };
    EXPECT_EQ(enqueue_kernel("meet", a, {}, meet), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
    EXPECT_EQ(enqueue_kernel("meet", b, {}, meet), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(there, 2);
    EXPECT_EQ(counted("kernel.meet"), 2);
}

TEST(Streams, FinishTheirWorkAfterTheyAreDestroyed) {
    const Emulation one;
    std::atomic<bool> done{false};
    const cudaStream_t stream = new_stream();
    EXPECT_EQ(enqueue_kernel("slow", stream, {}, [&] { sleep_ms(5), done = true; }), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
    for (int i = 0; i < 1000 && !done; ++i) {
        sleep_ms(1);
    }
    EXPECT_TRUE(done);
}

TEST(Events, AWaitCapturesTheRecordBeforeIt) {
    const Emulation one;
    const cudaStream_t a = new_stream();
    const cudaStream_t b = new_stream();
    const cudaEvent_t event = new_event();
    std::atomic<bool> go{false};
    EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    EXPECT_EQ(enqueue_kernel("hold", a, {},
                             [&] {
                                 while (!go)
                                     sleep_ms(1);
                             }),
              cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess); // anew: b does not wait for this one
    EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    go = true;
    EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

TEST(Events, OneThatWasNeverRecordedCountsAsDone) {
    const Emulation one;
    const cudaStream_t stream = new_stream();
    const cudaEvent_t event = new_event();
    EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
    EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

TEST(Events, ElapsedTimeIsThatOfTheStream) {
    const Emulation one;
    const cudaStream_t stream = new_stream();
    const cudaEvent_t begin = new_event(0);
    const cudaEvent_t end = new_event(0);
    float ms = 0;
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaEventRecord(begin, stream), cudaSuccess);
    EXPECT_EQ(enqueue_kernel("slow", stream, {}, [] { sleep_ms(20); }), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(end, stream), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
    EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
    EXPECT_GE(ms, 19.0f);
    EXPECT_EQ(cudaEventElapsedTime(&ms, end, begin), cudaErrorInvalidValue);
    const cudaEvent_t untimed = new_event();
    EXPECT_EQ(cudaEventRecord(untimed, stream), cudaSuccess);
    EXPECT_EQ(cudaEventSynchronize(untimed), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, untimed), cudaErrorInvalidResourceHandle);
}

TEST(Errors, AFaultOfAKernelStays) {
    const Emulation one;
    const cudaStream_t stream = new_stream();
    EXPECT_EQ(enqueue_kernel("bad", stream, {}, [] { throw std::runtime_error("divergence"); }),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, 4), cudaErrorLaunchFailure);
    EXPECT_EQ(enqueue_kernel("good", stream, {}, [] {}), cudaErrorLaunchFailure);
    EXPECT_EQ(counted("device_failures"), 1);
}

TEST(Errors, AreInjectedAtTheCallThatIsNamed) {
    const Emulation one(
        Settings{{"FOREGATHER_EMULATION_FAIL", "cudaEventRecord:2,copy:1,cudaMalloc:1@7"}});
    const cudaStream_t stream = new_stream();
    const cudaEvent_t event = new_event();
    EXPECT_NE(new_floats(1), nullptr);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorUnknown);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    EXPECT_EQ(enqueue_kernel("copy", stream, {}, [] {}), cudaErrorLaunchOutOfResources);
    EXPECT_EQ(enqueue_kernel("copy", stream, {}, [] {}), cudaSuccess);
    EXPECT_EQ(counted("call.cudaEventRecord"), 3);
    EXPECT_EQ(counted("injected"), 2);
}

TEST(Errors, AFaultCanBeInjected) {
    const Emulation one(Settings{{"FOREGATHER_EMULATION_FAIL", "kernel_fault:2"}});
    const cudaStream_t stream = new_stream();
    EXPECT_EQ(enqueue_kernel("first", stream, {}, [] {}), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(enqueue_kernel("second", stream, {}, [] {}), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
}

TEST(Report, IsLeftInAFileAtTheEnd) {
    GTEST_FLAG_SET(death_test_style, "threadsafe"); // a fork would lose the workers
    const std::string base = testing::TempDir() + "emulation_report";
    const Emulation one(Settings{{"FOREGATHER_EMULATION_REPORT", base}});
    ::setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    const auto end = [] {
        const cudaStream_t stream = new_stream();
        EXPECT_EQ(enqueue_kernel("first", stream, {}, [] {}), cudaSuccess);
        new_floats(1);
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        std::exit(0);
    };
    EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
    ::unsetenv("OMPI_COMM_WORLD_RANK");
    std::map<std::string, std::int64_t> figures;
    std::ifstream file(base + ".3");
    std::string name;
    for (std::int64_t value = 0; file >> name >> value;) {
        figures[name] = value;
    }
    EXPECT_EQ(figures.at("kernel.first"), 1);
    EXPECT_EQ(figures.at("allocations.after_first_kernel"), 1);
    EXPECT_EQ(figures.at("reports"), 0);
}

TEST(Host, FunctionsRunInStreamOrder) {
    const Emulation one;
    const cudaStream_t stream = new_stream();
    std::pair<int, int> seen{0, 0};
    EXPECT_EQ(enqueue_kernel("first", stream, {}, [&] { sleep_ms(5), seen.first = 1; }),
              cudaSuccess);
    EXPECT_EQ(cudaLaunchHostFunc(
                  stream,
                  [](void* data) {
                      auto* both = static_cast<std::pair<int, int>*>(data);
                      both->second = both->first;
                  },
                  &seen),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(seen.second, 1);
}

TEST(Functions, SharedMemoryHasALimit) {
    const Emulation one;
    const auto* any = reinterpret_cast<const void*>(&cudaFree);
    const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
    EXPECT_EQ(cudaFuncSetAttribute(any, attribute, 227 * 1024), cudaSuccess);
    EXPECT_EQ(cudaFuncSetAttribute(any, attribute, 227 * 1024 + 1), cudaErrorInvalidValue);
}

} // namespace
} // namespace foregather::emulation
