// SPDX-License-Identifier: Apache-2.0
// Signals, a file and a clock.
#include "early_stop.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <foregather/base/error.hpp>
#include <foregather/base/printable.hpp>
#include <foregather/mesh/stop.hpp>

#include "settle_common.hpp"

namespace foregather::job {
namespace {

constexpr std::int64_t by_usr1 = EarlyStop::lowest_bit;
constexpr std::int64_t by_term = 2 * by_usr1;
constexpr std::int64_t by_file = 2 * by_term;
constexpr std::int64_t by_time = 2 * by_file;

// Seconds since 1970. Set by newer Slurms, and by jobs/launch.sh.
constexpr const char* batch_end = "SLURM_JOB_END_TIME";

double since(std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

// When the batch system ends the job, in seconds since 1970; 0: it is not told. Refused with a
// note, in place of a guess: what is no time from now on.
struct BatchEnd {
    std::int64_t at = 0;
    std::string note;
};

BatchEnd end_of_batch(std::int64_t now_unix_s) {
    constexpr std::int64_t last_year = 253402300799; // 9999
    const char* text = std::getenv(batch_end);
    if (text == nullptr || *text == 0) {
        return {};
    }
    std::int64_t end = 0;
    const char* const last = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, last, end);
    if (error == std::errc() && stop == last && end > now_unix_s && end <= last_year) {
        return {end, ""};
    }
    return {0, std::string(batch_end) + "=" + base::printable(text) +
                   " is not a time to come, in seconds since 1970: this run will not stop in time "
                   "for the batch system's end"};
}

} // namespace

EarlyStop::EarlyStop(const deck::Deck& deck, const Start& start, const mesh::Control& control)
    : first_(control.first()), file_(file_of(deck)), begin_(start.begin) {
    if (!first_) {
        return;
    }
    if (file_is_there()) {
        base::refuse(file_ + " is there and would stop this run at once; remove it");
    }
    limit_ = limit_of(deck, start.started_unix_s);
}

EarlyStop::Limit EarlyStop::limit_of(const deck::Deck& deck, std::int64_t started_unix_s) {
    const double asked = deck.sections().job.max_time_s;
    const BatchEnd end = end_of_batch(started_unix_s);
    const auto batch = static_cast<double>(end.at - started_unix_s);
    const bool by_batch = end.at > 0 && (asked == 0 || batch < asked);
    return {by_batch ? batch : asked, by_batch ? batch_end : "job.max_time", end.note};
}

std::string EarlyStop::limit() const {
    return limit_.s == 0 ? ""
                         : "the job ends at most " + in_format(limit_.s, "%.5g") +
                               " s after its start (" + limit_.by + ")";
}

bool EarlyStop::file_is_there() {
    looked_ = std::chrono::steady_clock::now();
    std::error_code unreadable; // then it is not there
    return std::filesystem::exists(file_, unreadable);
}

double EarlyStop::kept_s(double limit_s, const Pace& pace) {
    return std::max({std::min(60.0, limit_s / 4), 1.5 * pace.save_s, 2 * pace.slowest_step_s});
}

std::int64_t EarlyStop::asked(const Pace& pace) {
    std::int64_t bits = 0;
    if (const char* signal = mesh::StopSignals::received()) {
        bits |= std::strcmp(signal, "SIGUSR1") == 0 ? by_usr1 : by_term;
    }
    if (first_ && limit_.s > 0 && since(begin_) > limit_.s - kept_s(limit_.s, pace)) {
        bits |= by_time;
    }
    if (first_ && since(looked_) > 1 && file_is_there()) {
        bits |= by_file;
    }
    return bits;
}

std::string EarlyStop::reason(std::int64_t asked) {
    return asked >= by_time   ? "the time limit is near"
           : asked >= by_file ? "the stop file is there"
           : asked >= by_term ? "SIGTERM"
           : asked >= by_usr1 ? "SIGUSR1"
                              : "";
}

void EarlyStop::take_away_file() const {
    std::error_code not_ours; // a later run says so
    if (first_) {
        std::filesystem::remove(file_, not_ours);
    }
}

} // namespace foregather::job
