// SPDX-License-Identifier: Apache-2.0
// Ranks of a node share slots and lay their parts side by side: the node's first rank exchanges
// whole node blocks with the first ranks of other nodes, so that a byte crosses the network once
// per node, and inside a node nothing is copied.
#include <atomic>

#include <foregather/comm/mpi_communicator.hpp>
#include <foregather/device/host_stream.hpp>
#include <foregather/mesh/control.hpp>
#include <foregather/mesh/window.hpp>

#include "reductions.hpp"

namespace foregather::comm {
namespace {

class NodeCommunicator final : public MpiReductions {
public:
    NodeCommunicator(MPI_Comm group, MPI_Comm node, const MpiOptions& options)
        : MpiReductions(group, options), options_(options), node_(node), group_(group),
          window_(node, {8 * (1 + static_cast<std::int64_t>(node_.size()))}),
          names_(node_.gather(own_name())) {
        MPI_Comm leaders = MPI_COMM_NULL;
        mesh::check(
            MPI_Comm_split(group, node_.first() ? 0 : MPI_UNDEFINED, group_.rank(), &leaders),
            "find the first ranks of the nodes");
        std::vector<int> ranks_of_node;
        for (const std::int64_t ranks :
             group_.gather(std::int64_t{node_.first() ? node_.size() : 0})) {
            if (ranks > 0) {
                ranks_of_node.push_back(static_cast<int>(ranks));
            }
        }
        if (leaders != MPI_COMM_NULL) {
            const mesh::Comm owned(leaders);
            leaders_ = std::make_unique<Exchange>(leaders, ranks_of_node, options);
        }
    }

    int rank() const override { return group_.rank(); }
    int size() const override { return group_.size(); }
    std::string name() const override { return "mpi, one exchange per node"; }
    bool shares_node() const override { return true; }
    base::Bytes brings(base::ConstSlab shard, base::Slab full) const override {
        return leaders_ ? full.bytes() - node_.size() * shard.bytes() : base::Bytes{0};
    }

private:
    void do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                       device::Stream& stream) override {
        const std::int64_t turn = ++turns_;
        device::host_stream(stream).enqueue(
            [this, shard, full, turn, what = std::move(what)] { run(shard, full, turn, what); });
    }

    // The stream has waited until this rank's compute is done with the slot: say so by coming to
    // the turn, and the leader overwrites the slot once all ranks of the node have come.
    void run(base::ConstSlab shard, base::Slab full, std::int64_t turn, const std::string& what) {
        const auto begin = Clock::now();
        std::atomic_ref(cell(node_.rank())).store(turn, std::memory_order_release);
        const base::Bytes received = brings(shard, full);
        if (leaders_) {
            wait_for_node(turn, what, begin);
            leaders_->run(shard.data, shard.bytes(), full.data, what, begin);
            pace(received, options_.bytes_per_second, begin);
            std::atomic_ref(cell(node_.size())).store(turn, std::memory_order_release);
        } else {
            wait_for_leader(turn, what, begin);
        }
        count_gather(received, std::chrono::duration<double>(Clock::now() - begin).count());
    }

    void wait_for_node(std::int64_t turn, const std::string& what, Clock::time_point begin) {
        for (int r = 0; r < node_.size(); ++r) {
            const auto come = [&] {
                return std::atomic_ref(cell(r)).load(std::memory_order_acquire) >= turn;
            };
            if (!wait_until(come, begin, options_.timeout_s, [] {})) {
                give_up(what, options_.timeout_s,
                        names_[static_cast<std::size_t>(r)] + " did not free its slot", true);
            }
        }
    }

    void wait_for_leader(std::int64_t turn, const std::string& what, Clock::time_point begin) {
        const auto gathered = [&] {
            return std::atomic_ref(cell(node_.size())).load(std::memory_order_acquire) >= turn;
        };
        // The leader tells first: it has the same limit and knows who is missing.
        if (!wait_until(gathered, begin, options_.timeout_s + 4, [] {})) {
            give_up(what, options_.timeout_s,
                    names_[0] + ", which gathers for this node, did not finish", true);
        }
    }

    // [rank of the node]: the turn it has come to; [size]: the turn last gathered.
    std::int64_t& cell(int index) const {
        return reinterpret_cast<std::int64_t*>(window_.data())[index];
    }

    MpiOptions options_;
    mesh::Control node_, group_;
    mesh::SharedWindow window_;
    std::unique_ptr<Exchange> leaders_; // of the node's first rank
    std::vector<std::string> names_;    // of the node's ranks, for messages
    std::int64_t turns_ = 0;            // gathers enqueued
};

} // namespace

std::unique_ptr<Communicator> make_node_communicator(MPI_Comm group, MPI_Comm node,
                                                     const MpiOptions& options) {
    return std::make_unique<NodeCommunicator>(group, node, options);
}

} // namespace foregather::comm
