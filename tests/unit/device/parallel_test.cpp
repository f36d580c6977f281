// SPDX-License-Identifier: Apache-2.0
// A parallel region of a host stream runs each block once, on as many threads as it was given, and
// returns when all blocks are done. What blocks compute is the kernels' business.
#include <atomic>
#include <chrono>
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

class ParallelTest : public testing::TestWithParam<int> {
protected:
    // Runs `work` as a closure of the stream and waits for it; what it threw is thrown again.
    void run(std::function<void()> work) {
        stream().enqueue(std::move(work));
        stream_->sync();
    }
    device::HostStream& stream() { return device::host_stream(*stream_); }

    std::unique_ptr<device::Device> device_ = device::make_host_device(GetParam());
    std::unique_ptr<device::Stream> stream_ = device_->stream("compute", Priority::normal);
};

// Waits until `n` have come here, at most ten seconds; false when they did not.
bool meet(std::atomic<int>& come, int n) {
    ++come;
    for (const auto end = std::chrono::steady_clock::now() + 10s; come < n;) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        std::this_thread::sleep_for(100us);
    }
    return true;
}

} // namespace

TEST_P(ParallelTest, runs_each_block_once) {
    for (const std::int64_t blocks : {0, 1, 2, 3, 4, 5, 7, 16, 1000}) {
        std::vector<std::atomic<int>> times(static_cast<std::size_t>(blocks));
        std::atomic<int> strays = 0;
        run([&] {
            stream().parallel(blocks, [&](std::int64_t block, int thread) {
                ++times[static_cast<std::size_t>(block)];
                strays += thread < 0 || thread >= GetParam() ? 1 : 0;
            });
        });
        for (const auto& n : times) {
            ASSERT_EQ(n, 1) << "with " << blocks << " blocks";
        }
        EXPECT_EQ(strays, 0);
    }
}

TEST_P(ParallelTest, is_over_when_all_its_blocks_are) {
    std::vector<int> values(64); // not atomic: ordered by the end of the region alone
    int sum = 0;
    run([&] {
        for (int round = 0; round < 50; ++round) {
            stream().parallel(
                64, [&](std::int64_t block, int) { values[static_cast<std::size_t>(block)] += 1; });
        }
        for (const int v : values) {
            sum += v;
        }
    });
    EXPECT_EQ(sum, 64 * 50);
}

TEST_P(ParallelTest, ten_thousand_small_regions) {
    std::atomic<std::int64_t> done = 0;
    run([&] {
        for (int region = 0; region < 10'000; ++region) {
            stream().parallel(region % 4, [&](std::int64_t, int) { ++done; });
        }
    });
    EXPECT_EQ(done, 2'500 * (0 + 1 + 2 + 3));
}

TEST_P(ParallelTest, uses_all_its_threads_at_once) {
    EXPECT_EQ(stream().threads(), GetParam());
    EXPECT_EQ(stream().threads_seen(), 0);
    std::atomic<int> come = 0;
    std::atomic<int> met = 0;
    run([&] {
        stream().parallel(GetParam(),
                          [&](std::int64_t, int) { met += meet(come, GetParam()) ? 1 : 0; });
    });
    EXPECT_EQ(met, GetParam());
    EXPECT_EQ(stream().threads_seen(), GetParam());
}

TEST_P(ParallelTest, one_block_is_seen_on_one_thread) {
    run([&] { stream().parallel(1, [](std::int64_t, int) {}); });
    EXPECT_EQ(stream().threads_seen(), 1);
}

TEST_P(ParallelTest, an_exception_in_a_block_reaches_sync) {
    std::string told;
    try {
        run([&] {
            stream().parallel(100, [](std::int64_t block, int) {
                if (block == 50) {
                    base::fail("block 50 broke");
                }
            });
        });
    } catch (const base::Error& error) {
        told = error.what();
    }
    EXPECT_EQ(told, "block 50 broke");
}

TEST_P(ParallelTest, a_region_after_one_that_threw_is_whole) {
    std::atomic<int> done = 0;
    int caught = 0;
    run([&] {
        for (int round = 0; round < 20; ++round) {
            try {
                stream().parallel(8, [](std::int64_t, int) { base::fail("broken"); });
            } catch (const base::Error&) {
                ++caught;
            }
            stream().parallel(8, [&](std::int64_t, int) { ++done; });
        }
    });
    EXPECT_EQ(caught, 20);
    EXPECT_EQ(done, 20 * 8);
}

INSTANTIATE_TEST_SUITE_P(threads, ParallelTest, testing::Values(1, 2, 3, 4),
                         testing::PrintToStringParamName());

TEST(HighPriorityStreamTest, has_one_thread_whatever_the_device_has) {
    const auto device = device::make_host_device(4);
    const auto gather = device->stream("gather", Priority::high);
    EXPECT_EQ(device::host_stream(*gather).threads(), 1);
}

TEST(HostDeviceTest, gives_streams_at_least_one_thread) {
    const auto device = device::make_host_device(0);
    const auto compute = device->stream("compute", Priority::normal);
    EXPECT_EQ(device::host_stream(*compute).threads(), 1);
}
