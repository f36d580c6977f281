// SPDX-License-Identifier: Apache-2.0
// Nodes are found by a shared-memory split, ranks are renumbered by node and local rank, and shard
// groups are cut from consecutive ranks, so that they stay inside nodes where they can.
#include <foregather/mesh/topology.hpp>

#include <algorithm>
#include <array>

#include <sched.h>

#include <foregather/mesh/control.hpp>

namespace foregather::mesh {
namespace {

constexpr std::size_t host_bytes = 64;

struct PlaceRecord { // what a rank tells the others, of fixed size
    int node;
    int local_rank;
    int cores;
    std::array<char, host_bytes> host;
};

cpu_set_t own_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        CPU_SET(0, &set);
    }
    return set;
}

Comm split(MPI_Comm comm, int color, int key, const std::string& purpose) {
    MPI_Comm part = MPI_COMM_NULL;
    check(MPI_Comm_split(comm, color, key, &part), "split ranks into " + purpose);
    check(MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN), "set the error handler of " + purpose);
    return Comm(part);
}

} // namespace

Topology::Topology(int shard, const std::string& shard_key) {
    find_nodes();
    cut_groups(shard, shard_key);
}

void Topology::find_nodes() {
    const int launcher_rank = rank_in(MPI_COMM_WORLD);
    MPI_Comm local = MPI_COMM_NULL;
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, launcher_rank, MPI_INFO_NULL,
                              &local),
          "find the ranks of this node");
    local_ = Comm(local);
    local_rank_ = rank_in(local);
    local_size_ = size_of(local);

    // A node's number is that of its first rank among the first ranks of all nodes.
    int leader = launcher_rank;
    check(MPI_Bcast(&leader, 1, MPI_INT, 0, local), "tell this node's first rank");
    std::vector<int> leaders(static_cast<std::size_t>(size_of(MPI_COMM_WORLD)));
    check(MPI_Allgather(&leader, 1, MPI_INT, leaders.data(), 1, MPI_INT, MPI_COMM_WORLD),
          "gather the nodes' first ranks");
    std::sort(leaders.begin(), leaders.end());
    leaders.erase(std::unique(leaders.begin(), leaders.end()), leaders.end());
    nodes_ = static_cast<int>(leaders.size());
    node_ = static_cast<int>(std::find(leaders.begin(), leaders.end(), leader) - leaders.begin());

    // Sorting by (node, launcher's rank) numbers ranks by node, then local rank.
    world_ = split(MPI_COMM_WORLD, 0, node_ * size_of(MPI_COMM_WORLD) + local_rank_,
                   "ranks ordered by node");
    rank_ = rank_in(world_.handle());
    size_ = size_of(world_.handle());

    const cpu_set_t mine = own_cores();
    cpu_set_t all;
    check(MPI_Allreduce(&mine, &all, static_cast<int>(sizeof(cpu_set_t)), MPI_BYTE, MPI_BOR, local),
          "join the affinity masks of this node");
    node_cores_ = CPU_COUNT(&all);

    PlaceRecord record{node_, local_rank_, CPU_COUNT(&mine), {}};
    host_name().copy(record.host.data(), host_bytes - 1);
    std::vector<PlaceRecord> records(static_cast<std::size_t>(size_));
    check(MPI_Allgather(&record, static_cast<int>(sizeof(record)), MPI_BYTE, records.data(),
                        static_cast<int>(sizeof(record)), MPI_BYTE, world_.handle()),
          "gather the places of all ranks");
    for (int r = 0; r < size_; ++r) {
        const PlaceRecord& place = records[static_cast<std::size_t>(r)];
        places_.push_back({r, place.host.data(), place.node, place.local_rank, place.cores});
    }
}

void Topology::cut_groups(int shard, const std::string& shard_key) {
    const int wanted = shard == 0 ? size_ : shard;
    if (wanted > size_ || size_ % wanted != 0) {
        throw AgreedError(base::Status::refused,
                          shard_key + " = " + std::to_string(shard) + " does not divide the " +
                              std::to_string(size_) +
                              " ranks of this job; use a divisor, or 0 for all");
    }
    shard_ = split(world_.handle(), rank_ / wanted, rank_, "shard groups");
    shard_rank_ = rank_in(shard_.handle());
    shard_size_ = size_of(shard_.handle());
    replica_peers_ = split(world_.handle(), shard_rank_, rank_, "the same parts in all replicas");
    const int first = rank_ - shard_rank_;
    for (int r = first; r < first + shard_size_; ++r) {
        shard_on_one_node_ =
            shard_on_one_node_ && places_[static_cast<std::size_t>(r)].node == node_;
    }
    shard_node_ =
        split(shard_.handle(), node_, shard_rank_, "the shard group's ranks on each node");
    // Transports are chosen alike by all groups.
    std::array<int, 2> somewhere = {shard_on_one_node_ ? 0 : 1,
                                    size_of(shard_node_.handle()) > 1 ? 1 : 0};
    check(MPI_Allreduce(MPI_IN_PLACE, somewhere.data(), 2, MPI_INT, MPI_MAX, world_.handle()),
          "agree on where shard groups lie");
    shard_on_one_node_ = somewhere[0] == 0;
    shard_shares_nodes_ = somewhere[0] == 1 && somewhere[1] == 1;
}

} // namespace foregather::mesh
