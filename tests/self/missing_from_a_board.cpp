// SPDX-License-Identifier: Apache-2.0
// Must end by the board's time limit: rank 1 never posts its part, and exactly one line must name
// it. tests/run.sh judges the line and how soon all ranks end.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <mpi.h>

#include <foregather/comm/shared_board.hpp>
#include <foregather/device/host_device.hpp>

#include "../support/mpi_test.hpp"

using namespace foregather;

TEST(SelfTest, one_rank_never_posts) {
    comm::SharedBoard board(MPI_COMM_WORLD, 2, 1);
    const auto device = device::make_host_device(1);
    const auto stream = device->stream("compute", device::Priority::normal);
    if (tests::rank() == 1) {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
    board.post(1, 1);
    board.wait(1, 1, "layer.1", *stream);
    stream->sync();
}
