// SPDX-License-Identifier: Apache-2.0
// The watch over ranks and file work while all is well: it ends nobody's job, and says how long it
// saw silence and standstill. What it does when all is not well is in tests/self and tests/field.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include <foregather/mesh/topology.hpp>
#include <foregather/mesh/watch.hpp>

#include "../../support/mpi_test.hpp"

using namespace foregather;
using namespace std::chrono_literals;

TEST(WatchTest, comes_and_goes_together_even_when_ranks_are_at_different_places) {
    const mesh::Topology topology(0, "mesh.shard");
    const mesh::Control control(topology.world());
    for (int i = 0; i < 3; ++i) {
        const mesh::Watch watch(topology, control, 10);
        std::this_thread::sleep_for(std::chrono::milliseconds(20 * tests::rank()));
    }
    EXPECT_TRUE(tests::agree(true));
}

TEST(WatchTest, pulses_keep_silence_short) {
    const mesh::Topology topology(0, "mesh.shard");
    const mesh::Control control(topology.world());
    const mesh::Watch watch(topology, control, 0.8); // pulses every 0.1 s
    std::this_thread::sleep_for(1300ms);
    if (tests::ranks() > 1) {
        EXPECT_GT(watch.longest_silence_s(), 0);
    }
    EXPECT_LT(watch.longest_silence_s(), 1) << "the main thread sleeps, the pulses go on";
    EXPECT_TRUE(tests::agree(true));
}

TEST(WatchTest, file_work_that_moves_is_left_alone_however_long_it_takes) {
    const mesh::Topology topology(0, "mesh.shard");
    const mesh::Control control(topology.world());
    mesh::Watch watch(topology, control, 1);
    std::atomic<std::int64_t> moved = 0;
    watch.file_work(
        "writing", [&] { return moved.load(); },
        [&] {
            for (int i = 0; i < 26; ++i) { // 1.3 s in all, longer than the limit
                std::this_thread::sleep_for(50ms);
                ++moved;
            }
        });
    EXPECT_LT(watch.longest_standstill_s(), 1);
    EXPECT_TRUE(tests::agree(true));
}

TEST(WatchTest, a_standstill_below_the_limit_is_remembered_and_work_of_no_file_is_not_watched) {
    const mesh::Topology topology(0, "mesh.shard");
    const mesh::Control control(topology.world());
    mesh::Watch watch(topology, control, 2);
    watch.file_work(
        "flushing", [] { return std::int64_t{0}; }, [] { std::this_thread::sleep_for(700ms); });
    const double standstill = watch.longest_standstill_s();
    EXPECT_GT(standstill, 0.2);
    EXPECT_LT(standstill, 2);
    std::this_thread::sleep_for(500ms); // no file work now
    EXPECT_EQ(watch.longest_standstill_s(), standstill);
    EXPECT_TRUE(tests::agree(true));
}

TEST(WatchTest, an_exception_of_file_work_passes_and_ends_its_watch) {
    const mesh::Topology topology(0, "mesh.shard");
    const mesh::Control control(topology.world());
    mesh::Watch watch(topology, control, 0.4);
    EXPECT_THROW(watch.file_work(
                     "writing", [] { return std::int64_t{0}; },
                     [] { throw std::runtime_error("disk full"); }),
                 std::runtime_error);
    std::this_thread::sleep_for(600ms); // would be a standstill
    EXPECT_TRUE(tests::agree(true));
}
