// SPDX-License-Identifier: Apache-2.0
// The emulation itself: it runs what is right, and tells what is wrong with kernels that are not.
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>

#include "inline_runtime.hpp"
#include "native/fragments.cuh"
#include "native/launch.cuh"

// There only in programs that are built with an address sanitizer.
extern "C" [[gnu::weak]] void* __asan_region_is_poisoned(void* begin, std::size_t bytes);

namespace foregather::emulation {
namespace {

template <class Kernel>
void run(unsigned blocks, unsigned threads, Order order, Kernel kernel, std::size_t shared = 0) {
    run_grid({"trial", blocks, threads, shared}, order, kernel);
}

template <class Kernel>
std::string failure_of(unsigned threads, Kernel kernel) {
    try {
        run(1, threads, Order::ascending, kernel);
    } catch (const base::Error& error) {
        return error.what();
    }
    return "";
}

constexpr unsigned whole = 0xFFFFFFFFU;

class EachOrder : public testing::TestWithParam<Order> {};

TEST_P(EachOrder, RunsBlocksThreadsBarriersAndShuffles) {
    constexpr unsigned blocks = 3, threads = 96;
    std::vector<int> sums(blocks * threads);
    run(
        blocks, threads, GetParam(),
        [&] {
            int* shared = kernels::dynamic_shared<int>();
            int x = static_cast<int>(threadIdx.x);
            for (int step = 16; step > 0; step /= 2) {
                x += __shfl_xor_sync(whole, x, step);
            }
            shared[threadIdx.x] = x;
            __syncthreads();
            const int other = shared[threads - 1 - threadIdx.x];
            sums[blockIdx.x * threads + threadIdx.x] = other + static_cast<int>(blockIdx.x);
        },
        threads * sizeof(int));
    const int of_warp[3] = {496, 496 + 32 * 32, 496 + 64 * 32};
    for (unsigned i = 0; i < blocks * threads; ++i) {
        EXPECT_EQ(sums[i], of_warp[2 - i % threads / 32] + static_cast<int>(i / threads));
    }
}

TEST_P(EachOrder, BallotsNameTheirLanes) {
    run(1, 64, GetParam(), [] {
        const unsigned odd = __ballot_sync(whole, threadIdx.x % 2 == 1);
        EXPECT_EQ(odd, 0xAAAAAAAAU);
        EXPECT_TRUE(__any_sync(whole, threadIdx.x % 32 == 3));
        EXPECT_FALSE(__all_sync(whole, threadIdx.x % 32 == 3));
        EXPECT_EQ(__shfl_sync(whole, threadIdx.x, 5), threadIdx.x / 32 * 32 + 5);
    });
}

TEST_P(EachOrder, BlocksBeginWithSharedMemoryThatIsNan) {
    run(
        2, 32, GetParam(),
        [] {
            struct Own {
                float x[32];
            };
            auto& own = kernels::block_shared<Own>();
            float* dynamic = kernels::dynamic_shared<float>();
            EXPECT_TRUE(std::isnan(own.x[threadIdx.x]));
            EXPECT_TRUE(std::isnan(dynamic[threadIdx.x]));
            own.x[threadIdx.x] = dynamic[threadIdx.x] = 1;
        },
        32 * sizeof(float));
}

INSTANTIATE_TEST_SUITE_P(Orders, EachOrder,
                         testing::Values(Order::ascending, Order::descending, Order::shuffled));

// Sums a value from each warp, with or without the barrier that makes them ready.
int sum_of_warps(Order order, bool with_barrier) {
    int result = 0;
    run(1, 128, order, [&] {
        auto& of_warp = kernels::block_shared<int[4]>();
        if (threadIdx.x % 32 == 0) {
            of_warp[threadIdx.x / 32] = 1 + static_cast<int>(threadIdx.x / 32);
        }
        if (with_barrier) {
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            result = of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3];
        }
    });
    return result;
}

TEST(Fibers, AMissingBarrierShowsInOneOrder) {
    EXPECT_EQ(sum_of_warps(Order::ascending, true), 10);
    EXPECT_EQ(sum_of_warps(Order::descending, true), 10);
    EXPECT_NE(sum_of_warps(Order::ascending, false), sum_of_warps(Order::descending, false));
}

// Copies an array into shared memory and out again, waiting for the copies or not.
std::vector<float> copied(Order order, bool waits) {
    alignas(16) static const float from[4] = {1, 2, 3, 4};
    std::vector<float> result(8);
    run(
        1, 32, order,
        [&] {
            float* shared = kernels::dynamic_shared<float>();
            if (threadIdx.x < 2) {
                kernels::begin_copy_16(shared + 4 * threadIdx.x, from, threadIdx.x == 1);
            }
            if (waits) {
                kernels::finish_copies();
            }
            __syncthreads();
            if (threadIdx.x < 8) {
                result[threadIdx.x] = shared[threadIdx.x];
            }
        },
        8 * sizeof(float));
    return result;
}

TEST(Fibers, ACopyThatIsNotWaitedForIsMissingInOneOrder) {
    const std::vector<float> expected = {1, 2, 3, 4, 0, 0, 0, 0};
    EXPECT_EQ(copied(Order::ascending, true), expected);
    EXPECT_EQ(copied(Order::descending, true), expected);
    EXPECT_NE(copied(Order::descending, false), expected);
}

TEST(Fibers, ABarrierThatOneWarpSkipsIsTold) {
    const std::string said = failure_of(64, [] {
        if (threadIdx.x < 32) {
            __syncthreads();
        }
    });
    EXPECT_NE(said.find("kernel trial, block (0, 0, 0): divergent barrier"), std::string::npos)
        << said;
}

TEST(Fibers, TwoBarriersForOneAreTold) {
    const std::string said = failure_of(64, [] {
        if (threadIdx.x < 32) {
            __syncthreads();
        } else {
            __syncthreads();
        }
    });
    EXPECT_NE(said.find("divergent barrier"), std::string::npos) << said;
}

TEST(Fibers, ALaneThatHasExitedIsTold) {
    const std::string said = failure_of(32, [] {
        if (threadIdx.x != 7) {
            __syncwarp();
        }
    });
    EXPECT_NE(said.find("thread (7, 0, 0) has exited"), std::string::npos) << said;
}

TEST(Fibers, APartialMaskIsTold) {
    const std::string said =
        failure_of(32, [] { __shfl_xor_sync(0xFFFFU, static_cast<int>(threadIdx.x), 1); });
    EXPECT_NE(said.find("partial mask"), std::string::npos) << said;
}

TEST(Fibers, LanesInDifferentOperationsAreTold) {
    const std::string said = failure_of(32, [] {
        if (threadIdx.x < 16) {
            __syncwarp();
        } else {
            __ballot_sync(whole, true);
        }
    });
    EXPECT_NE(said.find("lanes diverge"), std::string::npos) << said;
}

TEST(Fibers, WhatAThreadThrowsComesOutAndTheNextKernelRuns) {
    const std::string said = failure_of(64, [] {
        __syncthreads();
        if (threadIdx.x == 40) {
            base::fail("thrown by a thread");
        }
        __syncthreads();
    });
    EXPECT_EQ(said, "thrown by a thread");
    EXPECT_EQ(failure_of(64, [] { __syncthreads(); }), "");
}

TEST(Fibers, DeviceFunctionsOutsideOfKernelsAreRefused) {
    EXPECT_THROW(__syncthreads(), base::Error);
}

TEST(Fibers, TensorCoresMultiply) {
    std::vector<std::uint16_t> a(16 * 16), b(16 * 16);
    std::vector<float> sums(16 * 16);
    const auto bits = [](int x) {
        return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) >>
                                          16);
    };
    for (int i = 0; i < 256; ++i) {
        a[static_cast<std::size_t>(i)] = bits(i * 7 % 19 - 9);
        b[static_cast<std::size_t>(i)] = bits(i * 5 % 23 - 11);
    }
    run(1, 32, Order::shuffled, [&] { // a b with b stored by rows: its matrices come transposed
        alignas(16) static std::uint16_t left[256], right[256];
        std::memcpy(left, a.data(), sizeof left);
        std::memcpy(right, b.data(), sizeof right);
        const unsigned lane = threadIdx.x;
        unsigned of_a[4], of_b[4];
        kernels::load_matrices(of_a, left + lane % 16 * 16 + lane / 16 * 8);
        kernels::load_matrices_transposed(of_b, right + lane % 16 * 16 + lane / 16 * 8);
        for (unsigned half = 0; half < 2; ++half) {
            float mine[4] = {};
            kernels::multiply_add(mine, of_a, of_b[2 * half], of_b[2 * half + 1]);
            for (unsigned i = 0; i < 4; ++i) {
                sums[(lane / 4 + i / 2 * 8) * 16 + half * 8 + lane % 4 * 2 + i % 2] = mine[i];
            }
        }
    });
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 16; ++column) {
            int sum = 0;
            for (int k = 0; k < 16; ++k) {
                sum += ((row * 16 + k) * 7 % 19 - 9) * ((k * 16 + column) * 5 % 23 - 11);
            }
            EXPECT_EQ(sums[static_cast<std::size_t>(row * 16 + column)], static_cast<float>(sum));
        }
    }
}

TEST(InlineRuntime, AWriteThatIsNotDeclaredIsTold) {
    DeviceVector<float> x(std::vector<float>(8, 1.0F));
    const auto launch = [&](std::vector<Touch> touches) {
        enqueue_kernel("trial", nullptr, std::move(touches), [&] { (*x)[5] = 2; });
    };
    EXPECT_THROW(launch({{x->data(), 16, true}}), base::Error);
    EXPECT_THROW(launch({{x->data(), 32, false}}), base::Error);
    launch({{x->data(), 32, true}});
    EXPECT_EQ((*x)[5], 2.0F);
}

TEST(InlineRuntime, AReadThatIsNotDeclaredFindsNan) {
    DeviceVector<float> x(std::vector<float>(8, 1.0F));
    float declared = 0, other = 0;
    enqueue_kernel("trial", nullptr, {{x->data(), 16, false}}, [&] {
        declared = (*x)[3];
        other = (*x)[4];
    });
    EXPECT_EQ(declared, 1.0F);
    EXPECT_TRUE(std::isnan(other));
    EXPECT_EQ((*x)[4], 1.0F);
}

TEST(FibersDeathTest, AddressSanitizerSeesPastTheEndOfSharedMemory) {
    if (&__asan_region_is_poisoned == nullptr) {
        GTEST_SKIP() << "built without an address sanitizer";
    }
    EXPECT_DEATH(run(
                     1, 32, Order::ascending,
                     [] { kernels::dynamic_shared<float>()[threadIdx.x + 1] = 0; },
                     32 * sizeof(float)),
                 "heap-buffer-overflow");
}

} // namespace
} // namespace foregather::emulation
