// SPDX-License-Identifier: Apache-2.0
// Ranks, nodes, shard groups and replicas on one node, at every size; a shard that does not divide
// the ranks is refused by all alike.
#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include <foregather/mesh/control.hpp>
#include <foregather/mesh/topology.hpp>

#include "../../support/mpi_test.hpp"

using namespace foregather;

namespace {

int size_of(MPI_Comm comm) {
    int size = 0;
    mesh::check(MPI_Comm_size(comm, &size), "ask for a size");
    return size;
}

} // namespace

TEST(TopologyTest, ranks_of_one_node_are_numbered_as_they_were_launched) {
    const mesh::Topology topology(0, "mesh.shard");
    EXPECT_EQ(topology.rank(), tests::rank());
    EXPECT_EQ(topology.size(), tests::ranks());
    EXPECT_EQ(topology.nodes(), 1);
    EXPECT_EQ(topology.node(), 0);
    EXPECT_EQ(topology.local_rank(), tests::rank());
    EXPECT_EQ(topology.local_size(), tests::ranks());
    EXPECT_GE(topology.node_cores(), 1);
}

TEST(TopologyTest, every_rank_knows_the_place_of_all) {
    const mesh::Topology topology(0, "mesh.shard");
    ASSERT_EQ(topology.places().size(), static_cast<std::size_t>(tests::ranks()));
    for (int r = 0; r < tests::ranks(); ++r) {
        const mesh::RankPlace& place = topology.places()[static_cast<std::size_t>(r)];
        EXPECT_EQ(place.rank, r);
        EXPECT_EQ(place.local_rank, r);
        EXPECT_EQ(place.node, 0);
        EXPECT_EQ(place.host, mesh::host_name());
        EXPECT_GE(place.cores, 1);
        EXPECT_LE(place.cores, topology.node_cores());
    }
}

TEST(TopologyTest, a_shard_of_zero_takes_all_ranks) {
    const mesh::Topology topology(0, "mesh.shard");
    EXPECT_EQ(topology.shard_size(), tests::ranks());
    EXPECT_EQ(topology.shard_rank(), tests::rank());
    EXPECT_EQ(topology.replicas(), 1);
    EXPECT_EQ(topology.replica(), 0);
    EXPECT_TRUE(topology.shard_on_one_node());
    EXPECT_FALSE(topology.shard_shares_nodes()) << "which is said of groups that span nodes";
    EXPECT_EQ(size_of(topology.shard_node()), tests::ranks());
}

TEST(TopologyTest, every_divisor_cuts_groups_of_neighbours) {
    for (int shard = 1; shard <= tests::ranks(); ++shard) {
        if (tests::ranks() % shard != 0) {
            continue;
        }
        const mesh::Topology topology(shard, "mesh.shard");
        EXPECT_EQ(topology.shard_size(), shard);
        EXPECT_EQ(size_of(topology.shard()), shard);
        EXPECT_EQ(size_of(topology.shard_node()), shard);
        EXPECT_EQ(topology.shard_rank(), tests::rank() % shard);
        EXPECT_EQ(topology.replicas(), tests::ranks() / shard);
        EXPECT_EQ(topology.replica(), tests::rank() / shard);
        // The group's communicator holds just those ranks, in order.
        const auto members = mesh::Control(topology.shard()).gather(std::int64_t{tests::rank()});
        for (int s = 0; s < shard; ++s) {
            EXPECT_EQ(members[static_cast<std::size_t>(s)], topology.replica() * shard + s);
        }
    }
}

TEST(TopologyTest, a_shard_that_does_not_divide_the_ranks_is_refused_on_every_rank) {
    for (const int shard : {tests::ranks() + 1, tests::ranks() * 2, 3, 2}) {
        if (shard <= tests::ranks() && tests::ranks() % shard == 0) {
            continue;
        }
        std::string told;
        try {
            const mesh::Topology topology(shard, "deck.txt:4: mesh.shard");
        } catch (const mesh::AgreedError& error) {
            EXPECT_EQ(error.status(), base::Status::refused);
            told = error.what();
        }
        EXPECT_EQ(told.rfind("deck.txt:4: mesh.shard = " + std::to_string(shard), 0), 0U) << told;
        EXPECT_NE(told.find(std::to_string(tests::ranks())), std::string::npos) << told;
    }
    EXPECT_TRUE(tests::agree(true)) << "and all are still there";
}
