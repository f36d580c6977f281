// SPDX-License-Identifier: Apache-2.0
// Whether a run is to stop before its work is done: a signal to any rank, a file beside the
// results, or a time limit, seen in time to save. It decides; how a job stops is its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <foregather/deck/deck.hpp>
#include <foregather/job/job.hpp>
#include <foregather/mesh/control.hpp>

namespace foregather::job {

class EarlyStop {
public:
    // Not collective. Rank 0's clock, folder and environment count. Throws Error(refused) on rank 0
    // where a stop file is there from before.
    EarlyStop(const deck::Deck& deck, const Start& start, const mesh::Control& control);

    // When a run ends at the latest: job.max_time after the program's start, or the end that a
    // batch system has set, whichever comes first.
    struct Limit {
        double s = 0;     // from the program's start; 0: none
        std::string by;   // which of the two
        std::string note; // of an end that the batch system tells, but not as a time to come
    };
    static Limit limit_of(const deck::Deck& deck, std::int64_t started_unix_s);

    // What the run has seen of its own pace, in seconds.
    struct Pace {
        double slowest_step_s = 0; // or pass, or turn of a bench
        double save_s = 0;         // the last one, or an estimate of the first
    };
    // This rank's reasons to stop, as bits from `lowest_bit` up; 0: none. Does not block.
    std::int64_t asked(const Pace& pace);
    // Of the largest asked() of all ranks: in words, the same on every rank.
    static std::string reason(std::int64_t asked);
    static constexpr std::int64_t lowest_bit = 4;

    // After the run has stopped: a stop file has done its work and is removed. By rank 0.
    void take_away_file() const;

    // Of the run's time before its limit, what is kept for saving: max(60 s, 1.5 x the last save,
    // 2 x the slowest step); of a limit below four minutes a quarter in place of the 60 s.
    static double kept_s(double limit_s, const Pace& pace);
    // "the job ends at most 600 s after its start (job.max_time)"; empty: there is no limit.
    std::string limit() const;

    // The file that stops a run: output.file + ".stop".
    static std::string file_of(const deck::Deck& deck) {
        return deck.sections().output.file + ".stop";
    }

private:
    bool file_is_there();

    bool first_;
    std::string file_;
    std::chrono::steady_clock::time_point begin_;
    Limit limit_;
    std::chrono::steady_clock::time_point looked_; // for the file: at most once a second
};

} // namespace foregather::job
