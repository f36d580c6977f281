// SPDX-License-Identifier: Apache-2.0
// What communicators over MPI have in common: reductions between all ranks of a group, on the
// stream's thread. How they gather, they decide.
#pragma once

#include <foregather/comm/mpi_communicator.hpp>

#include "exchange.hpp"

namespace foregather::comm {

class MpiReductions : public Communicator {
protected:
    MpiReductions(MPI_Comm group, const MpiOptions& options); // collective over `group`

    // Between all ranks of the group; for the stream's thread.
    Exchange& exchange() { return exchange_; }
    const Exchange& exchange() const { return exchange_; }

    void do_reduce_scatter(base::ConstSlab full, base::Slab shard, std::string what,
                           device::Stream& stream) override;
    void do_all_reduce(base::Slab slab, std::string what, device::Stream& stream) override;
    // The end of what began then: as soon as the emulated link allows, and counted.
    void end(base::Bytes received, Clock::time_point begin);

private:
    Exchange exchange_;
    double bytes_per_second_;
};

} // namespace foregather::comm
