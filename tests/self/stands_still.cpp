// SPDX-License-Identifier: Apache-2.0
// Must end by the progress watch: file work of rank 1 moves seven bytes and then none. tests/run.sh
// judges the line and how soon all ranks end.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include <foregather/mesh/topology.hpp>
#include <foregather/mesh/watch.hpp>

#include "../support/mpi_test.hpp"

using namespace foregather;

TEST(SelfTest, file_work_of_one_rank_stands_still) {
    const mesh::Topology topology(0, "mesh.shard");
    const mesh::Control control(topology.world());
    mesh::Watch watch(topology, control, 1);
    if (tests::rank() == 1) {
        watch.file_work(
            "writing run/scores.h5", [] { return std::int64_t{7}; },
            [] { std::this_thread::sleep_for(std::chrono::hours(1)); });
    }
    EXPECT_TRUE(tests::agree(true));
}
