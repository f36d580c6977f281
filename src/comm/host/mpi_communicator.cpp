// SPDX-License-Identifier: Apache-2.0
// The plain transport: every rank exchanges its part with every other, on its gather stream's
// thread.
#include <foregather/comm/mpi_communicator.hpp>

#include <foregather/device/host_stream.hpp>

#include "reductions.hpp"

namespace foregather::comm {
namespace {

class MpiCommunicator final : public MpiReductions {
public:
    MpiCommunicator(MPI_Comm group, const MpiOptions& options) : MpiReductions(group, options) {}

    int rank() const override { return exchange().rank(); }
    int size() const override { return exchange().size(); }
    std::string name() const override { return "mpi"; }

private:
    void do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                       device::Stream& stream) override {
        device::host_stream(stream).enqueue([this, shard, full, what = std::move(what)] {
            const auto begin = Clock::now();
            exchange().run(shard.data, shard.bytes(), full.data, what, begin);
            end(brings(shard, full), begin);
        });
    }
};

} // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm group, const MpiOptions& options) {
    return std::make_unique<MpiCommunicator>(group, options);
}

} // namespace foregather::comm
