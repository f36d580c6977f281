// SPDX-License-Identifier: Apache-2.0
// The ranks of a test cut into shard groups and replicas, with a communicator for each kind of
// collective, as a job has them.
#pragma once

#include <memory>

#include <mpi.h>

#include <foregather/comm/mpi_communicator.hpp>

#include "delayed_communicator.hpp"
#include "mpi_test.hpp"
#include "toy_training.hpp"

namespace foregather::tests {

class ToyGroups {
public:
    enum class Reductions { messages, shared };
    // shard: ranks of a group, a divisor of all. Collective.
    explicit ToyGroups(int shard, Reductions how = Reductions::messages) {
        MPI_Comm_split(MPI_COMM_WORLD, rank() / shard, rank(), &shard_);
        MPI_Comm_split(MPI_COMM_WORLD, rank() % shard, rank(), &replicas_);
        gather = comm::make_mpi_communicator(shard_, {});
        if (shard > 1) {
            reduce = how == Reductions::shared ? comm::make_shared_communicator(shard_, {})
                                               : comm::make_mpi_communicator(shard_, {});
        }
        over_replicas = ranks() > shard ? comm::make_mpi_communicator(replicas_, {}) : nullptr;
    }
    ~ToyGroups() {
        gather.reset();
        reduce.reset();
        over_replicas.reset();
        MPI_Comm_free(&shard_);
        MPI_Comm_free(&replicas_);
    }
    ToyGroups(const ToyGroups&) = delete;
    ToyGroups& operator=(const ToyGroups&) = delete;

    ToyTraining::Groups all() const { return {*gather, reduce.get(), over_replicas.get()}; }

    std::unique_ptr<comm::Communicator> gather, reduce, over_replicas;

private:
    MPI_Comm shard_ = MPI_COMM_NULL, replicas_ = MPI_COMM_NULL;
};

} // namespace foregather::tests
