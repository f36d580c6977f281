// SPDX-License-Identifier: Apache-2.0
// How long collectives take on groups of ranks that fill nodes one after another: bytes over bus
// bandwidth, and the steps of a ring. It knows no model.
#pragma once

#include <foregather/base/types.hpp>

namespace foregather::job {

// Achieved rates.
struct Links {
    int ranks_per_node = 1;
    double node_bandwidth = 0, node_latency = 0;       // bytes/s, s: between ranks of a node
    double network_bandwidth = 0, network_latency = 0; // of a rank, between nodes
};

// Ranks of a collective, as the slowest such group lies on nodes.
struct Group {
    int ranks = 1;
    int nodes = 1;
    int on_node = 1; // of them, on the node that has the fewest

    friend bool operator==(const Group&, const Group&) = default;
};

// One copy of the weights: consecutive ranks.
Group shard_group(int ranks, int shard, int ranks_per_node);
// The ranks that hold the same part of each copy: `shard` apart.
Group replica_group(int ranks, int shard, int ranks_per_node);

// What each rank of the group gets of the others', all at once: inside a node its bandwidth; over
// nodes no more than the network cards of the group's ranks on a node have between them.
double bus_bandwidth(const Group& group, const Links& links);
// A ring's way from rank to rank: P - 1 steps, of which nodes - 1 go to another node.
double ring_latency(const Group& group, const Links& links);

// Of a buffer of `whole` bytes that is gathered, or reduced and scattered: a rank receives
// (P - 1) / P of it ("bus bandwidth" of nccl-tests, doc/PERFORMANCE.md).
double all_gather_seconds(base::Bytes whole, const Group& group, const Links& links);
// Reduced and scattered, then gathered.
double all_reduce_seconds(base::Bytes whole, const Group& group, const Links& links);

} // namespace foregather::job
