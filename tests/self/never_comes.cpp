// SPDX-License-Identifier: Apache-2.0
// Must end by the watch: rank 1 lives, but never comes to an exchange that the others wait in.
// Work of a stream before that, longer than the limit, must not end it. tests/run.sh judges the
// line and how soon all ranks end.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include <foregather/base/moves.hpp>
#include <foregather/mesh/control.hpp>
#include <foregather/mesh/topology.hpp>
#include <foregather/mesh/watch.hpp>

#include "../support/mpi_test.hpp"

using namespace foregather;
using namespace std::chrono_literals;

TEST(SelfTest, one_rank_never_comes_to_an_exchange) {
    const mesh::Topology topology(0, "mesh.shard");
    const mesh::Control control(topology.world());
    mesh::Watch watch(topology, control, 0.4); // 3.5 s for an exchange
    watch.begin("step", 7);
    if (tests::rank() == 1) {
        for (int i = 0; i < 25; ++i) { // 5 s
            std::this_thread::sleep_for(200ms);
            base::moved();
        }
    }
    control.barrier();
    if (tests::rank() == 1) {
        watch.doing("storing figures");
        std::this_thread::sleep_for(1h);
    }
    control.barrier();
    EXPECT_TRUE(tests::agree(true));
}
