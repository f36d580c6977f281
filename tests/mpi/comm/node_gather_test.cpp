// SPDX-License-Identifier: Apache-2.0
// The gather of ranks that share nodes, on pretended nodes of one machine: slots are shared, one
// rank of each node gathers for all, and no slot is overwritten while a rank of its node still
// computes from it.
#include <chrono>
#include <memory>

#include <gtest/gtest.h>

#include <foregather/comm/mpi_communicator.hpp>

#include "../../support/delayed_communicator.hpp"
#include "../../support/mpi_test.hpp"
#include "../../support/toy_run.hpp"

using namespace foregather;
using namespace std::chrono_literals;
using std::chrono::microseconds;

namespace {

// Nodes of `per_node` ranks, the last maybe smaller; the parameter.
class NodeGatherTest : public testing::TestWithParam<int> {
protected:
    NodeGatherTest() {
        MPI_Comm node = MPI_COMM_NULL;
        mesh::check(
            MPI_Comm_split(MPI_COMM_WORLD, tests::rank() / GetParam(), tests::rank(), &node),
            "pretend nodes");
        node_ = mesh::Comm(node);
        mesh::check(MPI_Comm_size(node, &node_size_), "ask for a node's size");
    }
    std::unique_ptr<comm::Communicator> communicator(const comm::MpiOptions& options = {}) {
        return comm::make_node_communicator(MPI_COMM_WORLD, node_.handle(), options);
    }
    bool leads() const { return tests::rank() % GetParam() == 0; }

    mesh::Comm node_;
    int node_size_ = 1;
};

} // namespace

TEST_P(NodeGatherTest, every_compute_finds_its_unit_and_keeps_it) {
    for (const int depth : {0, 1, 3}) {
        const auto communicator = this->communicator();
        EXPECT_EQ(communicator->size(), tests::ranks());
        EXPECT_EQ(communicator->rank(), tests::rank());
        EXPECT_TRUE(communicator->shares_node());
        tests::ToyOptions options;
        options.depth = depth;
        tests::ToyRun run(*communicator, tests::toy_model(6, 2), options, node_.handle());
        const tests::ToyWatch& watch = run.run();
        EXPECT_EQ(watch.wrong, 0) << "depth " << depth;
        EXPECT_EQ(watch.sum, run.expected_sum());
        EXPECT_EQ(run.prefetcher().freed(), run.prefetcher().issued());
        EXPECT_TRUE(tests::agree(true)); // slots go when nobody of the node reads them
    }
}

TEST_P(NodeGatherTest, a_rank_that_computes_longer_than_its_neighbours_keeps_its_slot) {
    for (int slow = 0; slow < tests::ranks(); ++slow) {
        const auto communicator = this->communicator();
        tests::ToyOptions options;
        options.depth = 1;
        const auto time = tests::rank() == slow ? 2ms : 0ms;
        options.compute_time = [time](std::int64_t) { return microseconds(time); };
        tests::ToyRun run(*communicator, tests::toy_model(4, 0), options, node_.handle());
        EXPECT_EQ(run.run().wrong, 0) << "rank " << slow << " is slow";
        EXPECT_TRUE(tests::agree(true));
    }
}

TEST_P(NodeGatherTest, no_delay_changes_a_bit) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const auto communicator =
            this->communicator(); // it knows the slots of one run by their addresses
        std::mt19937_64 shared(seed);
        tests::ToyOptions options;
        options.depth = static_cast<int>(shared() % 4);
        options.passes = 2;
        std::mt19937_64 own(seed * 1000 + static_cast<std::uint64_t>(tests::rank()));
        options.compute_time = [&own](std::int64_t) {
            return microseconds(own() % 2 == 0 ? 0 : own() % 400);
        };
        tests::DelayedCommunicator delayed(*communicator, own(), microseconds(own() % 400));
        tests::ToyRun run(delayed, tests::toy_model(5, static_cast<int>(shared() % 3), 200),
                          options, node_.handle());
        const tests::ToyWatch& watch = run.run();
        EXPECT_EQ(watch.wrong, 0) << "seed " << seed;
        EXPECT_EQ(watch.sum, run.expected_sum()) << "seed " << seed;
        EXPECT_TRUE(tests::agree(true));
    }
}

TEST_P(NodeGatherTest, counts_what_came_from_other_nodes_on_the_rank_that_fetched_it) {
    const auto communicator = this->communicator();
    tests::ToyOptions options;
    options.passes = 1;
    const tests::ToyModel model = tests::toy_model(3, 0);
    tests::ToyRun run(*communicator, model, options, node_.handle());
    run.run();
    EXPECT_EQ(communicator->gathers_done(), 3);
    const base::Elements other_ranks = leads() ? tests::ranks() - node_size_ : 0;
    EXPECT_EQ(communicator->bytes_received(),
              base::Bytes{4 * other_ranks * run.plan().shard_elements});
    EXPECT_TRUE(tests::agree(true));
}

TEST_P(NodeGatherTest, a_link_rate_paces_what_comes_from_other_nodes) {
    constexpr double rate = 2'000'000;
    const auto communicator = this->communicator({.bytes_per_second = rate});
    tests::ToyOptions options;
    options.passes = 1;
    tests::ToyRun run(*communicator, tests::toy_model(1, 0, 10'000), options, node_.handle());
    const auto begin = std::chrono::steady_clock::now();
    run.run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const auto received = 4 * (tests::ranks() - node_size_) * run.plan().shard_elements;
    EXPECT_GE(took.count(), static_cast<double>(received) / rate) << "on all ranks of the node";
    EXPECT_TRUE(tests::agree(true));
}

INSTANTIATE_TEST_SUITE_P(ranks_per_node, NodeGatherTest, testing::Values(1, 2, 3),
                         testing::PrintToStringParamName());
