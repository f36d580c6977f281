// SPDX-License-Identifier: Apache-2.0
// A gather is MPI_Iallgather with a loop of test and short sleep: a blocking call would spin on the
// core that computes, and without tests MPI makes no progress.
#include <foregather/comm/mpi_communicator.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include <foregather/base/error.hpp>
#include <foregather/device/host_stream.hpp>
#include <foregather/mesh/session.hpp>

#include "roll_call.hpp"

namespace foregather::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Shards are multiples of this many bytes; counting in blocks keeps MPI's int counts below 1 TiB.
constexpr int block_bytes = 256;

struct TypeCloser {
    static MPI_Datatype null() { return MPI_DATATYPE_NULL; }
    void operator()(MPI_Datatype type) const noexcept {
        int finalized = 0;
        if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) {
            MPI_Type_free(&type);
        }
    }
};

class MpiCommunicator final : public Communicator {
public:
    MpiCommunicator(MPI_Comm group, const MpiOptions& options)
        : comm_(mesh::duplicate(group, "gathers")), roll_call_(group), options_(options) {
        mesh::check(MPI_Comm_rank(comm_.handle(), &rank_), "ask for a rank");
        mesh::check(MPI_Comm_size(comm_.handle(), &size_), "ask for a group's size");
        MPI_Datatype block = MPI_DATATYPE_NULL;
        mesh::check(MPI_Type_contiguous(block_bytes, MPI_BYTE, &block), "make a block type");
        mesh::check(MPI_Type_commit(&block), "commit a block type");
        block_ = base::Unique<MPI_Datatype, TypeCloser>(block);
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string name() const override { return "mpi"; }

private:
    void do_all_gather(base::ConstSlab shard, base::Slab full, std::string what,
                       device::Stream& stream) override {
        if (shard.bytes().count % block_bytes != 0) {
            base::fail(what + ": a part of " + std::to_string(shard.bytes().count) +
                       " bytes is no multiple of " + std::to_string(block_bytes));
        }
        device::host_stream(stream).enqueue(
            [this, shard, full, what = std::move(what)] { run(shard, full, what); });
    }

    void run(base::ConstSlab shard, base::Slab full, const std::string& what) {
        const auto begin = Clock::now();
        const int blocks = static_cast<int>(shard.bytes().count / block_bytes);
        MPI_Request request = MPI_REQUEST_NULL;
        mesh::check(MPI_Iallgather(shard.data, blocks, block_.handle(), full.data, blocks,
                                   block_.handle(), comm_.handle(), &request),
                    "start the " + what);
        ++sequence_;
        wait(request, begin, what);
        const base::Bytes received = full.bytes() - shard.bytes();
        if (options_.bytes_per_second > 0) {
            std::this_thread::sleep_until(
                begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                            static_cast<double>(received.count) / options_.bytes_per_second)));
        }
        count_gather(received, std::chrono::duration<double>(Clock::now() - begin).count());
    }

    // Short sleeps at first, for ranks of one node; then the few hundred microseconds that suit a
    // network, where every test costs and the wire needs time anyway.
    void wait(MPI_Request& request, Clock::time_point begin, const std::string& what) {
        auto pause = 20us;
        for (int done = 0;;) {
            mesh::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "run the " + what);
            if (done != 0) {
                return;
            }
            std::this_thread::sleep_for(pause);
            pause = std::min(pause * 2, std::chrono::microseconds(320));
            const std::chrono::duration<double> waited = Clock::now() - begin;
            if (waited > 500ms) {
                roll_call_.answer(sequence_);
            }
            if (waited.count() > options_.timeout_s) {
                give_up(what);
            }
        }
    }

    [[noreturn]] void give_up(const std::string& what) {
        const std::string missing = roll_call_.missing(sequence_);
        if (roll_call_.first_to_tell()) {
            std::fprintf(stderr,
                         "foregather: rank %d (%s): the %s has taken longer than comm.timeout = %g s; "
                         "%s. Look at those ranks' hosts, or raise comm.timeout if they are only "
                         "slow.\n",
                         rank_, mesh::host_name().c_str(), what.c_str(), options_.timeout_s, missing.c_str());
        } else {
            std::this_thread::sleep_for(5s); // the first rank that arrived tells and aborts
        }
        mesh::Session::abort(static_cast<int>(base::Status::failed));
    }

    mesh::Comm comm_;
    RollCall roll_call_;
    MpiOptions options_;
    base::Unique<MPI_Datatype, TypeCloser> block_;
    int rank_ = 0;
    int size_ = 1;
    std::int64_t sequence_ = 0; // gathers begun on this rank
};

} // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm group, const MpiOptions& options) {
    return std::make_unique<MpiCommunicator>(group, options);
}

} // namespace foregather::comm
