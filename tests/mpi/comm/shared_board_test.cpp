// SPDX-License-Identifier: Apache-2.0
// The board of a shared window: a wait ends when all ranks have posted the unit's epoch, and what
// they wrote before is there. Its time limit is in tests/self.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include <foregather/comm/shared_board.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/device/host_stream.hpp>

#include "../../support/mpi_test.hpp"

using namespace foregather;
using namespace std::chrono_literals;

namespace {

class SharedBoardTest : public testing::Test {
protected:
    void enqueue(std::function<void()> work) {
        device::host_stream(*compute_).enqueue(std::move(work));
    }
    static bool last() { return tests::rank() == tests::ranks() - 1; }

    std::unique_ptr<device::Device> device_ = device::make_host_device(1);
    std::unique_ptr<device::Stream> compute_ = device_->stream("compute", device::Priority::normal);
};

} // namespace

TEST_F(SharedBoardTest, a_wait_sees_what_every_rank_wrote_before_it_posted) {
    constexpr int units = 5;
    const mesh::SharedWindow window(MPI_COMM_WORLD, {8 * units * tests::ranks()});
    auto* values = reinterpret_cast<std::int64_t*>(window.data());
    comm::SharedBoard board(MPI_COMM_WORLD, units, 30);
    std::int64_t wrong = 0; // of the compute stream until sync
    for (int unit = 0; unit < units; ++unit) {
        board.wait(unit, 1, "unit", *compute_);
        enqueue([&, unit] {
            for (int r = 0; r < tests::ranks(); ++r) {
                wrong += values[unit * tests::ranks() + r] != 100 * unit + r + 1 ? 1 : 0;
            }
        });
    }
    for (int unit = units - 1; unit >= 0; --unit) { // not in the order of the waits
        std::this_thread::sleep_for(std::chrono::milliseconds(tests::rank() * 3));
        values[unit * tests::ranks() + tests::rank()] = 100 * unit + tests::rank() + 1;
        board.post(unit, 1);
    }
    compute_->sync();
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(tests::agree(true));
}

TEST_F(SharedBoardTest, a_wait_lasts_until_the_last_rank_has_posted) {
    comm::SharedBoard board(MPI_COMM_WORLD, 1, 30);
    const mesh::SharedWindow window(MPI_COMM_WORLD, {8});
    std::atomic_ref posted(*reinterpret_cast<std::int64_t*>(window.data()));
    std::int64_t seen = -1;
    board.wait(0, 1, "unit", *compute_);
    enqueue([&] { seen = posted.load(); });
    if (last()) {
        std::this_thread::sleep_for(50ms);
        posted = 1;
    }
    board.post(0, 1);
    compute_->sync();
    EXPECT_EQ(seen, 1);
    EXPECT_TRUE(tests::agree(true));
}

TEST_F(SharedBoardTest, units_are_waited_for_one_by_one) {
    comm::SharedBoard board(MPI_COMM_WORLD, 2, 30);
    board.post(1, 1);
    board.wait(1, 1, "unit 1", *compute_);
    compute_->sync(); // although nobody has posted unit 0
    EXPECT_TRUE(tests::agree(true));
}

TEST_F(SharedBoardTest, a_later_epoch_serves_an_earlier_wait_and_not_the_other_way) {
    comm::SharedBoard board(MPI_COMM_WORLD, 1, 30);
    const auto reached = device_->event();
    board.post(0, 3);
    board.wait(0, 2, "epoch 2", *compute_);
    compute_->sync();
    EXPECT_TRUE(tests::agree(true));
    board.wait(0, 4, "epoch 4", *compute_);
    reached->record(*compute_);
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(reached->done());
    EXPECT_TRUE(tests::agree(true));
    board.post(0, 4);
    compute_->sync();
    EXPECT_TRUE(tests::agree(true));
}

TEST_F(SharedBoardTest, many_epochs_keep_ranks_in_step) {
    constexpr std::uint64_t epochs = 200;
    comm::SharedBoard board(MPI_COMM_WORLD, 1, 30);
    const mesh::SharedWindow window(MPI_COMM_WORLD, {8 * tests::ranks()});
    auto* steps = reinterpret_cast<std::uint64_t*>(window.data());
    std::int64_t behind = 0;
    for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
        std::atomic_ref(steps[tests::rank()]).store(epoch, std::memory_order_relaxed);
        board.post(0, epoch);
        board.wait(0, epoch, "epoch", *compute_);
        compute_->sync();
        for (int r = 0; r < tests::ranks(); ++r) {
            behind += std::atomic_ref(steps[r]).load(std::memory_order_relaxed) < epoch ? 1 : 0;
        }
    }
    EXPECT_EQ(behind, 0);
    EXPECT_TRUE(tests::agree(true));
}
