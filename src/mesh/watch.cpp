// SPDX-License-Identifier: Apache-2.0
// A ring of pulses: eight bytes a second from each rank to the next.
#include <foregather/mesh/watch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>

#include <foregather/mesh/session.hpp>

namespace foregather::mesh {
namespace {

constexpr int tag = 1;
constexpr int pulse = 0;
constexpr int goodbye = 1;

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

[[noreturn]] void end_job(int rank, const std::string& message) {
    std::fprintf(stderr, "foregather: rank %d (%s): %s\n", rank, host_name().c_str(),
                 message.c_str());
    Session::abort(static_cast<int>(base::Status::failed));
}

} // namespace

Watch::Watch(const Topology& topology, double timeout_s)
    : comm_(duplicate(topology.world(), "pulses")), rank_(topology.rank()), size_(topology.size()),
      timeout_s_(timeout_s), last_pulse_s_(now_s()) {
    const RankPlace& place =
        topology.places()[static_cast<std::size_t>((rank_ + size_ - 1) % size_)];
    before_ = "rank " + std::to_string(place.rank) + " (" + place.host + ")";
    thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
    if (size_ > 1 && std::uncaught_exceptions() == 0) {
        try {
            send(goodbye);
            while (!goodbye_received_) { // its last message must not outlive the communicator
                listen(now_s());
                std::this_thread::sleep_for(std::chrono::microseconds(200));
            }
        } catch (const base::Error& error) {
            std::fprintf(stderr, "foregather: rank %d: %s\n", rank_, error.what());
        }
    }
}

void Watch::send(int message) {
    // Small enough to go eagerly: returns although the receiver may be stopped.
    check(MPI_Send(&message, 1, MPI_INT, (rank_ + 1) % size_, tag, comm_.handle()), "send a pulse");
}

void Watch::run() {
    const double period = std::clamp(timeout_s_ / 8, 0.05, 1.0);
    double last_look = now_s();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::duration<double>(period),
                              [&] { return stopping_; })) {
        const double now = now_s();
        if (now - last_look > 4 * period + 1) {
            // This process was stopped, not the others: what it did not see is held against nobody.
            last_pulse_s_ = last_move_s_ = now;
        }
        last_look = now;
        look_at_file_work(now);
        if (size_ > 1) {
            lock.unlock();
            try {
                send(pulse);
                listen(now);
            } catch (const base::Error& error) {
                end_job(rank_, error.what());
            }
            lock.lock();
        }
    }
}

void Watch::listen(double now) {
    for (int there = 1; there != 0;) {
        check(
            MPI_Iprobe((rank_ + size_ - 1) % size_, tag, comm_.handle(), &there, MPI_STATUS_IGNORE),
            "look for a pulse");
        if (there != 0) {
            int message = pulse;
            check(MPI_Recv(&message, 1, MPI_INT, (rank_ + size_ - 1) % size_, tag, comm_.handle(),
                           MPI_STATUS_IGNORE),
                  "receive a pulse");
            last_pulse_s_ = now;
            goodbye_received_ = goodbye_received_ || message == goodbye;
        }
    }
    const double silence = goodbye_received_ ? 0 : now - last_pulse_s_;
    longest_silence_s_ = std::max(longest_silence_s_.load(), silence);
    if (silence > 1.25 * timeout_s_ + 5) {
        char text[200];
        std::snprintf(
            text, sizeof(text),
            "%s has been silent for %.0f s (comm.timeout = %g s): it is stopped, or its host is. "
            "Look there, then submit again.",
            before_.c_str(), silence, timeout_s_);
        end_job(rank_, text);
    }
}

void Watch::look_at_file_work(double now) {
    if (!moved_) {
        return;
    }
    const std::int64_t moved = moved_();
    if (moved != last_moved_) {
        last_moved_ = moved;
        last_move_s_ = now;
    }
    const double standstill = now - last_move_s_;
    longest_standstill_s_ = std::max(longest_standstill_s_.load(), standstill);
    if (standstill > timeout_s_) {
        char text[100];
        std::snprintf(text, sizeof(text),
                      " has moved no byte for %.0f s (comm.timeout = %g s), after %lld bytes",
                      standstill, timeout_s_, static_cast<long long>(moved));
        end_job(rank_, what_ + text + "; is the file system there?");
    }
}

void Watch::file_work(const std::string& what, const std::function<std::int64_t()>& moved,
                      const std::function<void()>& work) {
    {
        const std::lock_guard lock(mutex_);
        what_ = what;
        moved_ = moved;
        last_moved_ = moved();
        last_move_s_ = now_s();
    }
    struct End {
        Watch& watch;
        ~End() {
            const std::lock_guard lock(watch.mutex_);
            watch.moved_ = nullptr;
        }
    } end{*this};
    work();
}

} // namespace foregather::mesh
