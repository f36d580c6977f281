// SPDX-License-Identifier: Apache-2.0
// Ends this process where a call that no watch looks at never comes back, as MPI's own start and
// end do while a rank is stopped. How long that may take is the caller's business.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace foregather::mesh {

class TimeLimit {
public:
    // From now until it is destroyed, `what` ("MPI's start") may last so many seconds. Then the
    // process says so and exits with status 1, upon which its launcher ends the job; ranks 1, 2 and
    // higher ones wait for 3, 6 and 9 s more, so that one line is told. Does not block.
    TimeLimit(std::string what, double seconds);
    ~TimeLimit();
    TimeLimit(const TimeLimit&) = delete;
    TimeLimit& operator=(const TimeLimit&) = delete;

private:
    using Clock = std::chrono::steady_clock;

    void wait();
    bool passes(std::unique_lock<std::mutex>& lock, Clock::time_point begin, double seconds);

    std::string what_;
    double seconds_;
    Clock::time_point begin_ = Clock::now(); // not the thread's: it may come late
    std::mutex mutex_;
    std::condition_variable changed_;
    bool over_ = false; // guarded by mutex_
    std::thread thread_;
};

} // namespace foregather::mesh
