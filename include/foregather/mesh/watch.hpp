// SPDX-License-Identifier: Apache-2.0
// Notices what collectives cannot: a rank that has fallen silent, and file work that no longer
// moves. A thread of each rank sends a pulse to the next rank and listens to the one before it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include <foregather/mesh/topology.hpp>

namespace foregather::mesh {

class Watch {
public:
    // Collective. A rank that sends nothing for 1.25 x timeout + 5 s (more than a gather's own
    // limit, so that the gather names who is missing first), or file work that moves no byte for
    // timeout_s, ends the job with one line on stderr.
    Watch(const Topology& topology, double timeout_s);
    // Says goodbye and waits for the rank before to say so too, unless an exception is on its way.
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Runs `work` under the progress watch: `moved` counts bytes and may be called from another
    // thread; `what` names the work and the file. Blocks as long as `work` does.
    void file_work(const std::string& what, const std::function<std::int64_t()>& moved,
                   const std::function<void()>& work);

    // The longest that the rank before has been silent, and that file work has not moved, so far.
    double longest_silence_s() const { return longest_silence_s_.load(); }
    double longest_standstill_s() const { return longest_standstill_s_.load(); }

private:
    void run();
    void listen(double now);
    void look_at_file_work(double now);
    void send(int message);

    Comm comm_;
    int rank_, size_;
    std::string before_; // "rank 3 (host)"
    double timeout_s_;
    double last_pulse_s_ = 0;
    bool goodbye_received_ = false;
    std::atomic<double> longest_silence_s_ = 0, longest_standstill_s_ = 0;

    std::mutex mutex_; // guards all below
    std::condition_variable changed_;
    bool stopping_ = false;
    std::string what_; // of the file work in progress
    std::function<std::int64_t()> moved_;
    std::int64_t last_moved_ = 0;
    double last_move_s_ = 0;
    std::thread thread_; // last: it uses all of the above
};

} // namespace foregather::mesh
