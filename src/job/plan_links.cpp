// SPDX-License-Identifier: Apache-2.0
// Where groups lie, and the time of a ring.
#include "plan_links.hpp"

#include <algorithm>
#include <numeric>

namespace foregather::job {

Group shard_group(int ranks, int shard, int ranks_per_node) {
    const int per_node = std::min(ranks, ranks_per_node);
    if (per_node % shard == 0) {
        return {shard, 1, shard};
    }
    // Groups begin at multiples of the greatest common divisor within a node: so much of one may
    // lie alone on its node.
    const int least = std::gcd(shard, per_node);
    return {shard, 1 + (shard - least + per_node - 1) / per_node, least};
}

Group replica_group(int ranks, int shard, int ranks_per_node) {
    const int per_node = std::min(ranks, ranks_per_node);
    const int replicas = ranks / shard;
    const int on_node = std::clamp(per_node / shard, 1, replicas);
    const bool one_node = ranks <= ranks_per_node;
    return {replicas, one_node ? 1 : (replicas + on_node - 1) / on_node,
            one_node ? replicas : on_node};
}

double bus_bandwidth(const Group& group, const Links& links) {
    return group.nodes == 1
               ? links.node_bandwidth
               : std::min(links.node_bandwidth, group.on_node * links.network_bandwidth);
}

double ring_latency(const Group& group, const Links& links) {
    return (group.ranks - group.nodes) * links.node_latency +
           (group.nodes - 1) * links.network_latency;
}

double all_gather_seconds(base::Bytes whole, const Group& group, const Links& links) {
    if (group.ranks == 1) {
        return 0;
    }
    const double received = static_cast<double>(whole.count) * (group.ranks - 1) / group.ranks;
    return ring_latency(group, links) + received / bus_bandwidth(group, links);
}

double all_reduce_seconds(base::Bytes whole, const Group& group, const Links& links) {
    return 2 * all_gather_seconds(whole, group, links);
}

} // namespace foregather::job
