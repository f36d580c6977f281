// SPDX-License-Identifier: Apache-2.0
// Must end by the roll call: rank 1 never enters a gather, and exactly one line must name it,
// whoever tells. tests/run.sh judges the line and how soon all ranks end.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <mpi.h>

#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/device/host_device.hpp>

#include "../support/mpi_test.hpp"

using namespace foregather;

TEST(SelfTest, one_rank_never_enters_a_gather) {
    const auto communicator = comm::make_mpi_communicator(MPI_COMM_WORLD, {.timeout_s = 1});
    const auto device = device::make_host_device(1);
    const auto stream = device->stream("gather", device::Priority::high);
    const device::Buffer<float> shard(*device, 128, "shard");
    const device::Buffer<float> full(*device, 128 * tests::ranks(), "full");
    communicator->all_gather(base::slab(shard.view()), base::slab(full.view()), "gather of layer.0",
                             *stream);
    stream->sync(); // the first gather is well: a rank that was there once can still be missed
    if (tests::rank() == 1) {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
    communicator->all_gather(base::slab(shard.view()), base::slab(full.view()), "gather of layer.1",
                             *stream);
    stream->sync();
}
