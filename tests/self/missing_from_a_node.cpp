// SPDX-License-Identifier: Apache-2.0
// Must end with one line that names the rank that never enters a gather of two pretended nodes of
// two ranks: a node's second rank (3) or its first (2), as FOREGATHER_SELF_MISSING says.
// tests/run.sh judges it.
#include <chrono>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>
#include <mpi.h>

#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/mesh/window.hpp>

#include "../support/mpi_test.hpp"

using namespace foregather;

TEST(SelfTest, one_rank_never_enters_a_gather_of_its_node) {
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, tests::rank() / 2, tests::rank(), &node);
    const auto communicator = comm::make_node_communicator(MPI_COMM_WORLD, node, {.timeout_s = 1});
    const mesh::SharedWindow shards(node, base::bytes_of(2 * 128, base::DType::f32));
    const mesh::SharedWindow slot(node, base::bytes_of(4 * 128, base::DType::f32));
    const auto device = device::make_host_device(1);
    const auto stream = device->stream("gather", device::Priority::high);
    const base::Slab both{shards.data(), 2 * 128, base::DType::f32};
    const base::Slab full{slot.data(), 4 * 128, base::DType::f32};
    communicator->all_gather(both.part(tests::rank() % 2 * 128, 128), full, "gather of layer.0",
                             *stream);
    stream->sync();
    const char* missing = std::getenv("FOREGATHER_SELF_MISSING");
    if (tests::rank() == (missing == nullptr ? 3 : std::atoi(missing))) {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
    communicator->all_gather(both.part(tests::rank() % 2 * 128, 128), full, "gather of layer.1",
                             *stream);
    stream->sync();
}
