// SPDX-License-Identifier: Apache-2.0
// Who is where: nodes, local ranks, shard groups and replicas, as facts fixed at start.
// Ranks are numbered by node, then local rank, whatever the launcher's numbering was.
#pragma once

#include <string>
#include <vector>

#include <foregather/mesh/mpi.hpp>

namespace foregather::mesh {

struct RankPlace {
    int rank = 0;
    std::string host;
    int node = 0;
    int local_rank = 0;
    int cores = 1; // cores that this rank's affinity mask allows
};

class Topology {
public:
    // Collective over MPI_COMM_WORLD. shard: ranks that hold one copy of the weights, 0 = all.
    // Throws AgreedError(refused) when shard does not divide the rank count;
    // `shard_key` is how the message names the key, with its place.
    Topology(int shard, const std::string& shard_key);

    int rank() const { return rank_; }
    int size() const { return size_; }
    int node() const { return node_; }
    int nodes() const { return nodes_; }
    int local_rank() const { return local_rank_; }
    int local_size() const { return local_size_; }
    // Cores that the ranks of this node may use between them: the union of their affinity masks.
    int node_cores() const { return node_cores_; }

    int shard_rank() const { return shard_rank_; }
    int shard_size() const { return shard_size_; } // asked of the communicator, not of the deck
    int replica() const { return rank_ / shard_size_; }
    int replicas() const { return size_ / shard_size_; }
    bool shard_on_one_node() const { return shard_on_one_node_; }

    MPI_Comm world() const { return world_.handle(); } // in the order of rank()
    MPI_Comm shard() const { return shard_.handle(); }
    // The ranks of the shard group that are on this node, in order.
    MPI_Comm shard_node() const { return shard_node_.handle(); }
    // Does a shard group span nodes, with several of its ranks on one? The same answer everywhere.
    bool shard_shares_nodes() const { return shard_shares_nodes_; }
    // The ranks that hold the same parts as this one, one of each replica, in order.
    MPI_Comm replica_peers() const { return replica_peers_.handle(); }
    const std::vector<RankPlace>& places() const { return places_; }

private:
    void find_nodes();
    void cut_groups(int shard, const std::string& shard_key);

    Comm world_, local_, shard_, shard_node_, replica_peers_;
    int rank_ = 0, size_ = 1, node_ = 0, nodes_ = 1, local_rank_ = 0, local_size_ = 1;
    int node_cores_ = 1, shard_rank_ = 0, shard_size_ = 1;
    bool shard_on_one_node_ = true, shard_shares_nodes_ = false;
    std::vector<RankPlace> places_;
};

} // namespace foregather::mesh
