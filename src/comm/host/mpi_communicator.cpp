// SPDX-License-Identifier: Apache-2.0
// The plain transport: every rank exchanges its part with every other, on its gather stream's
// thread.
#include <foregather/comm/mpi_communicator.hpp>

#include <foregather/device/host_stream.hpp>

#include "exchange.hpp"

namespace foregather::comm {
namespace {

class MpiCommunicator final : public Communicator {
public:
    MpiCommunicator(MPI_Comm group, const MpiOptions& options)
        : exchange_(group, std::vector<int>(static_cast<std::size_t>(mesh::size_of(group)), 1),
                    options),
          options_(options) {}

    int rank() const override { return exchange_.rank(); }
    int size() const override { return exchange_.size(); }
    std::string name() const override { return "mpi"; }

private:
    void do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                       device::Stream& stream) override {
        device::host_stream(stream).enqueue([this, shard, full, what = std::move(what)] {
            const auto begin = Clock::now();
            exchange_.run(shard.data, shard.bytes(), full.data, what, begin);
            const base::Bytes received = brings(shard, full);
            pace(received, options_.bytes_per_second, begin);
            count_gather(received, std::chrono::duration<double>(Clock::now() - begin).count());
        });
    }

    Exchange exchange_;
    MpiOptions options_;
};

} // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm group, const MpiOptions& options) {
    return std::make_unique<MpiCommunicator>(group, options);
}

} // namespace foregather::comm
