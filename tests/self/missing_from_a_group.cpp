// SPDX-License-Identifier: Apache-2.0
// Must end by the roll call: rank 3 of 4 never enters a gather of its group {2, 3}, and is to be
// named by its number in the job, not in the group. tests/run.sh judges the line.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <mpi.h>

#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/device/host_device.hpp>

#include "../support/mpi_test.hpp"

using namespace foregather;

TEST(SelfTest, one_rank_never_enters_a_gather_of_its_group) {
    MPI_Comm group = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, tests::rank() / 2, tests::rank(), &group);
    const auto communicator = comm::make_mpi_communicator(group, {.timeout_s = 1});
    const auto device = device::make_host_device(1);
    const auto stream = device->stream("gather", device::Priority::high);
    const device::Buffer<float> shard(*device, 128, "shard");
    const device::Buffer<float> full(*device, 256, "full");
    if (tests::rank() == 3) {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
    communicator->all_gather(base::slab(shard.view()), base::slab(full.view()), "gather of layer.1",
                             *stream);
    stream->sync();
}
