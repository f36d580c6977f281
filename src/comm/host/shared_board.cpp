// SPDX-License-Identifier: Apache-2.0
// Epochs are atomics in a window of their own; readers poll with short sleeps.
#include <foregather/comm/shared_board.hpp>

#include <atomic>

#include <foregather/device/host_stream.hpp>
#include <foregather/mesh/control.hpp>

#include "../waiting.hpp"

namespace foregather::comm {
SharedBoard::SharedBoard(MPI_Comm group, int units, double timeout_s, std::string missed)
    : size_(mesh::size_of(group)), units_(units), timeout_s_(timeout_s), missed_(std::move(missed)),
      window_(group, {8 * (1 + static_cast<std::int64_t>(size_) * units)}),
      names_(mesh::Control(group).gather(own_name())) {
    rank_ = mesh::rank_in(group);
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

void SharedBoard::post(base::UnitId unit, std::uint64_t epoch, device::Stream& stream) {
    device::host_stream(stream).enqueue([this, unit, epoch] { post(unit, epoch); });
}

void SharedBoard::wait(base::UnitId unit, std::uint64_t epoch, const std::string& what,
                       device::Stream& stream) {
    device::host_stream(stream).enqueue([this, unit, epoch, what] { wait_now(unit, epoch, what); });
}

void SharedBoard::wait_now(base::UnitId unit, std::uint64_t epoch, const std::string& what) {
    const auto begin = Clock::now();
    const auto posted = [&](int r) {
        return std::atomic_ref(*cell(r, unit)).load(std::memory_order_acquire) >= epoch;
    };
    for (int r = 0; r < size_; ++r) {
        if (wait_until([&] { return posted(r); }, begin, timeout_s_, [] {})) {
            continue;
        }
        std::string missing;
        for (int m = r; m < size_; ++m) {
            missing += posted(m)
                           ? ""
                           : (missing.empty() ? "" : ", ") + names_[static_cast<std::size_t>(m)];
        }
        auto teller = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(window_.data()));
        give_up("wait for " + what, timeout_s_, missing + " " + missed_, teller.fetch_add(1) == 0);
    }
}

} // namespace foregather::comm
