// SPDX-License-Identifier: Apache-2.0
// A thread that waits for the end of what is limited. It asks MPI nothing: MPI may be what hangs.
#include <foregather/mesh/time_limit.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <foregather/base/error.hpp>
#include <foregather/mesh/session.hpp>

namespace foregather::mesh {

TimeLimit::TimeLimit(std::string what, double seconds)
    : what_(std::move(what)), seconds_(seconds), thread_([this] { wait(); }) {}

TimeLimit::~TimeLimit() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

// Whether it is still not over so many seconds after `begin`. A process that stood still itself has
// not seen what the others did meanwhile: its time begins anew, and lasts longer than a launcher
// needs to end it where another has told.
bool TimeLimit::passes(std::unique_lock<std::mutex>& lock, Clock::time_point begin,
                       double seconds) {
    while (true) {
        const auto end = begin + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(seconds));
        if (changed_.wait_until(lock, end, [this] { return over_; })) {
            return false;
        }
        begin = Clock::now();
        if (begin - end < std::chrono::seconds(1)) {
            return true;
        }
        seconds = std::max(seconds, 5.0);
    }
}

void TimeLimit::wait() {
    std::unique_lock lock(mutex_);
    // Those that would tell first may be the ones that are stopped.
    if (!passes(lock, begin_, seconds_) ||
        !passes(lock, Clock::now(), 3.0 * std::min(rank_of_launcher(), 3))) {
        return;
    }
    std::fprintf(stderr,
                 "foregather: %s has lasted longer than %g s: a rank is stopped, or its host does "
                 "not answer. Look at the hosts of this job.\n",
                 what_.c_str(), seconds_);
    std::_Exit(static_cast<int>(base::Status::failed));
}

} // namespace foregather::mesh
