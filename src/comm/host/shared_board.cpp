// SPDX-License-Identifier: Apache-2.0
// Epochs are atomics in a window of their own; readers poll with short sleeps.
#include <foregather/comm/shared_board.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include <foregather/device/host_stream.hpp>
#include <foregather/mesh/session.hpp>

namespace foregather::comm {
namespace {

int size_of(MPI_Comm comm) {
    int size = 0;
    mesh::check(MPI_Comm_size(comm, &size), "ask for a group's size");
    return size;
}

} // namespace

SharedBoard::SharedBoard(MPI_Comm group, int units, double timeout_s)
    : size_(size_of(group)), units_(units), timeout_s_(timeout_s),
      window_(group, {8 * (1 + static_cast<std::int64_t>(size_) * units)}) {
    mesh::check(MPI_Comm_rank(group, &rank_), "ask for a rank");
    for (int unit = 0; unit < units_; ++unit) {
        post(unit, 0);
    }
    if (rank_ == 0) {
        *reinterpret_cast<std::uint64_t*>(window_.data()) = 0;
    }
    mesh::check(MPI_Barrier(group), "wait until the board is empty");
}

std::uint64_t* SharedBoard::cell(int rank, base::UnitId unit) const {
    return reinterpret_cast<std::uint64_t*>(window_.data()) + 1 +
           static_cast<std::ptrdiff_t>(rank) * units_ + unit;
}

void SharedBoard::post(base::UnitId unit, std::uint64_t epoch) {
    std::atomic_ref(*cell(rank_, unit)).store(epoch, std::memory_order_release);
}

void SharedBoard::wait(base::UnitId unit, std::uint64_t epoch, const std::string& what,
                       device::Stream& stream) {
    device::host_stream(stream).enqueue(
        [this, unit, epoch, what] { wait_now(unit, epoch, what); });
}

void SharedBoard::wait_now(base::UnitId unit, std::uint64_t epoch, const std::string& what) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(timeout_s_);
    const auto posted = [&](int r) {
        return std::atomic_ref(*cell(r, unit)).load(std::memory_order_acquire) >= epoch;
    };
    for (int r = 0; r < size_; ++r) {
        while (!posted(r)) {
            if (Clock::now() > end) {
                std::string missing;
                for (int m = r; m < size_; ++m) {
                    missing += posted(m) ? "" : (missing.empty() ? "rank " : ", rank ") + std::to_string(m);
                }
                auto teller = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(window_.data()));
                if (teller.fetch_add(1) == 0) {
                    std::fprintf(stderr,
                                 "foregather: rank %d (%s): waiting for %s has taken longer than "
                                 "comm.timeout = %g s; %s of the shard group did not load its part. Look "
                                 "at it, or raise comm.timeout if it is only slow.\n",
                                 rank_, mesh::host_name().c_str(), what.c_str(), timeout_s_,
                                 missing.c_str());
                    mesh::Session::abort(static_cast<int>(base::Status::failed));
                }
                std::this_thread::sleep_for(std::chrono::seconds(5)); // the teller aborts
                return;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    }
}

} // namespace foregather::comm
