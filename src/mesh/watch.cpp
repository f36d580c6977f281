// SPDX-License-Identifier: Apache-2.0
// A ring of pulses: a small message a second from each rank to the next. Reports go straight to
// rank 0, and only where there is something to report.
#include <foregather/mesh/watch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include <foregather/base/moves.hpp>
#include <foregather/mesh/session.hpp>
#include <foregather/mesh/stop.hpp>

#include "slow_notes.hpp"

namespace foregather::mesh {

struct Pulse {
    int goodbye;
    int waits;             // in that exchange
    int in_a_row;          // ranks up to the sender that wait in it beyond the limit
    std::int64_t exchange; // that the sender has come to
    double still_s;        // since anything moved there
    Place at;
};

struct Watch::Wait {
    std::int64_t exchange;
    double seconds; // 0: does not wait
    const char* what;
};

namespace {

constexpr int tag = 1;
constexpr int report_tag = 2;

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// ", last heard of in step 7, writing x.h5".
std::string last_heard(const Place& place) {
    const Work work = work_of(place);
    const std::string in = work.kind.empty() ? "" : "in " + work.name();
    const std::string both = in + (in.empty() || work.doing.empty() ? "" : ", ") + work.doing;
    return both.empty() ? "" : ", last heard of " + both;
}

[[noreturn]] void end_job(int rank, const std::string& message) {
    std::fprintf(stderr, "foregather: rank %d (%s): %s\n", rank, host_name().c_str(),
                 message.c_str());
    Session::abort(static_cast<int>(base::Status::failed));
}

} // namespace

Watch::Watch(const Topology& topology, const Control& control, double timeout_s)
    : comm_(duplicate(topology.world(), "pulses")), control_(control), rank_(topology.rank()),
      size_(topology.size()), timeout_s_(timeout_s), heard_(std::make_unique<Pulse>()),
      last_pulse_s_(now_s()), last_sign_s_(last_pulse_s_),
      period_s_(std::clamp(timeout_s / 8, 0.05, 1.0)) {
    const RankPlace& place =
        topology.places()[static_cast<std::size_t>((rank_ + size_ - 1) % size_)];
    before_ = "rank " + std::to_string(place.rank) + " (" + place.host + ")";
    std::vector<std::string> names;
    for (const RankPlace& one : topology.places()) {
        names.push_back("rank " + std::to_string(one.rank) + " (" + one.host + ")");
    }
    if (rank_ == 0) {
        slow_notes_ = std::make_unique<SlowNotes>(std::move(names));
    }
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
            ending_since_s_ = now_s();
            send(true);
            while (!all_taken() ||
                   !goodbye_received_) { // its last message must not outlive the communicator
                listen(now_s());
                std::this_thread::sleep_for(std::chrono::microseconds(200));
            }
            end_reports();
        } catch (const base::Error& error) {
            std::fprintf(stderr, "foregather: rank %d: %s\n", rank_, error.what());
        }
    }
}

// Never waits for the receiver, which may be stopped: what it has not taken is not sent again.
template <class Message>
void Watch::post(const Message& message, int to, int with_tag) {
    Outgoing one{std::vector<std::byte>(sizeof(message)), MPI_REQUEST_NULL};
    std::memcpy(one.bytes.data(), &message, sizeof(message));
    outgoing_.push_back(std::move(one));
    check(MPI_Isend(outgoing_.back().bytes.data(), sizeof(message), MPI_BYTE, to, with_tag,
                    comm_.handle(), &outgoing_.back().request),
          "send a pulse");
}

bool Watch::all_taken() {
    while (!outgoing_.empty()) {
        int done = 0;
        check(MPI_Test(&outgoing_.front().request, &done, MPI_STATUS_IGNORE), "end a pulse");
        if (done == 0) {
            return false;
        }
        outgoing_.pop_front();
    }
    return true;
}

void Watch::send(bool goodbye) {
    if (all_taken() || goodbye) {
        const AtExchange at = control_.at();
        post(Pulse{goodbye ? 1 : 0, at.waits ? 1 : 0, in_a_row_, at.number, now_s() - last_sign_s_,
                   place_of(at_work_.in_hand())},
             (rank_ + 1) % size_, tag);
    }
}

// As many as were sent: none may outlive the communicator.
void Watch::end_reports() {
    std::int64_t sent = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(&reports_sent_, &sent, 1, MPI_INT64_T, MPI_SUM, comm_.handle(), &request),
          "count reports");
    wait_politely(request, "count reports");
    while (rank_ == 0 && reports_received_ < sent) {
        hear_reports(now_s());
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

void Watch::run() {
    double last_look = now_s();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::duration<double>(period_s_),
                              [&] { return stopping_; })) {
        const double now = now_s();
        if (now - last_look > 4 * period_s_ + 1) {
            // This process was stopped, not the others: what it did not see is held against nobody.
            last_pulse_s_ = last_move_s_ = last_sign_s_ = awake_since_s_ = now;
            stood_still_s_ = now - last_look;
        }
        last_look = now;
        look_at_file_work(now);
        look_at_moves(now);
        lock.unlock();
        try {
            if (size_ > 1) {
                send(false);
                listen(now);
            }
            report_slow(now);
            hear_reports(now);
            tell(now, false);
        } catch (const base::Error& error) {
            end_job(rank_, error.what());
        }
        lock.lock();
    }
}

void Watch::hear_before(double now) {
    for (int there = 1; there != 0;) {
        check(
            MPI_Iprobe((rank_ + size_ - 1) % size_, tag, comm_.handle(), &there, MPI_STATUS_IGNORE),
            "look for a pulse");
        if (there != 0) {
            Pulse pulse{};
            check(MPI_Recv(&pulse, sizeof(pulse), MPI_BYTE, (rank_ + size_ - 1) % size_, tag,
                           comm_.handle(), MPI_STATUS_IGNORE),
                  "receive a pulse");
            last_pulse_s_ = now;
            *heard_ = pulse;
            goodbye_received_ = goodbye_received_ || pulse.goodbye != 0;
        }
    }
}

// What moves under file_work() has its own limit.
void Watch::look_at_moves(double now) {
    const std::int64_t moves = base::moves();
    if (moves != last_moves_ || moved_ || base::MayLast::any()) {
        last_moves_ = moves;
        last_sign_s_ = now;
    }
}

Watch::Wait Watch::own_wait(double now) const {
    if (ending_since_s_) {
        return {std::numeric_limits<std::int64_t>::max(), now - *ending_since_s_, "end the run"};
    }
    const AtExchange at = control_.at();
    return {at.number, at.waits ? now - std::max(at.since_s, awake_since_s_) : 0, at.what};
}

// " This rank was in step 7, writing x.h5."
std::string Watch::own_place() const {
    const Work here = at_work_.in_hand();
    return here.kind.empty() ? ""
                             : " This rank was in " + here.name() +
                                   (here.doing.empty() ? "" : ", ") + here.doing + ".";
}

// Among the ranks that have not come there is always one behind which, in the ring, is one that
// waits: that one tells. A rank that waits elsewhere, or gets on with its work, is left alone.
void Watch::judge(double now) {
    const Wait own = own_wait(now);
    const double limit = exchange_limit_s();
    if (own.seconds <= limit) {
        in_a_row_ = 0;
        return;
    }
    char text[400];
    if (!goodbye_received_ && heard_->exchange < own.exchange && heard_->waits == 0 &&
        heard_->still_s > limit) {
        std::snprintf(text, sizeof(text),
                      "%s did not arrive within %.0f s (comm.timeout = %g s) to %s%s; nothing has "
                      "moved there for %.0f s. Look there, then submit again.",
                      before_.c_str(), own.seconds, timeout_s_, own.what,
                      last_heard(heard_->at).c_str(), heard_->still_s);
        end_job(rank_, text + own_place());
    }
    const bool same = heard_->waits != 0 && heard_->exchange == own.exchange;
    in_a_row_ = same && heard_->in_a_row > 0 ? std::min(heard_->in_a_row + 1, size_) : 1;
    if (in_a_row_ == size_ && rank_ == 0) {
        std::snprintf(text, sizeof(text),
                      "all ranks arrived to %s and wait for %.0f s (comm.timeout = %g s), so the "
                      "transport itself is stuck. Look at the links between them.",
                      own.what, own.seconds, timeout_s_);
        end_job(rank_, text + own_place());
    }
}

void Watch::listen(double now) {
    hear_before(now);
    judge(now);
    const double silence = goodbye_received_ ? 0 : now - last_pulse_s_;
    longest_silence_s_ = std::max(longest_silence_s_.load(), silence);
    // Who ends a job sends signals first: then a rank that does not answer will not come back.
    const double limit =
        StopSignals::received() != nullptr ? std::min(timeout_s_, 4.0) : timeout_s_;
    if (silence > 1.25 * limit + 5) {
        char text[400];
        std::snprintf(
            text, sizeof(text),
            "%s has been silent for %.0f s (comm.timeout = %g s)%s: it is stopped, or its host is. "
            "Look there, then submit again.",
            before_.c_str(), silence, timeout_s_, last_heard(heard_->at).c_str());
        end_job(rank_, text + own_place());
    }
}

void Watch::report_slow(double now) {
    const double silence = size_ > 1 && !goodbye_received_ ? now - last_pulse_s_ : 0;
    const double silent_s = silence > 1.2 * period_s_ + 0.1 ? silence : 0;
    while (const std::optional<SlowWork> slow = at_work_.slow(now)) {
        last_report_ = std::make_unique<SlowReport>(SlowReport{
            rank_, slow->over ? 1 : 0, slow->seconds, slow->median,
            std::exchange(stood_still_s_, 0), silent_s, place_of(slow->work), heard_->at});
        send_report(now);
    }
    // A rank may be found silent only after its silence has made this one slow.
    if (last_report_ && last_report_->silence_s == 0 && silent_s > 0) {
        last_report_->silence_s = silent_s;
        last_report_->before = heard_->at;
        send_report(now);
    }
    if (last_report_ && at_work_.in_hand().number != last_report_->at.number) {
        last_report_ = nullptr;
    }
}

void Watch::send_report(double now) {
    if (rank_ == 0) {
        const std::lock_guard lock(notes_mutex_);
        slow_notes_->add(*last_report_, now);
    } else {
        post(*last_report_, 0, report_tag);
        ++reports_sent_;
    }
}

void Watch::hear_reports(double now) {
    if (rank_ != 0) {
        return;
    }
    for (int there = size_ > 1 ? 1 : 0; there != 0;) {
        check(MPI_Iprobe(MPI_ANY_SOURCE, report_tag, comm_.handle(), &there, MPI_STATUS_IGNORE),
              "look for a report");
        if (there != 0) {
            SlowReport report{};
            check(MPI_Recv(&report, sizeof(report), MPI_BYTE, MPI_ANY_SOURCE, report_tag,
                           comm_.handle(), MPI_STATUS_IGNORE),
                  "receive a report");
            ++reports_received_;
            const std::lock_guard lock(notes_mutex_);
            slow_notes_->add(report, now);
        }
    }
}

void Watch::tell(double now, bool all) {
    if (rank_ != 0) {
        return;
    }
    const std::lock_guard lock(notes_mutex_);
    for (std::string& note : slow_notes_->due(now, all)) {
        std::printf("note: %s\n", note.c_str());
        std::fflush(stdout);
        notes_.push_back(std::move(note));
    }
}

void Watch::begin(const std::string& kind, std::int64_t number) {
    at_work_.begin(kind, number, now_s());
}

void Watch::end() { at_work_.end(now_s()); }

void Watch::doing(const std::string& what) { at_work_.doing(what, now_s()); }

bool Watch::wants_detail() const { return at_work_.wants_detail(now_s()); }

std::vector<std::string> Watch::take_notes(bool last) {
    if (last) {
        tell(now_s(), true);
    }
    const std::lock_guard lock(notes_mutex_);
    return std::exchange(notes_, {});
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
    doing(what);
    work();
    doing("after " + what);
}

} // namespace foregather::mesh
