// SPDX-License-Identifier: Apache-2.0
// No carriage returns: under mpirun stdout looks like a terminal even when it is a file.
#include "progress.hpp"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <foregather/base/error.hpp>

namespace foregather::job {

Progress::Progress(bool speaks, const std::string& log_path, bool append)
    : speaks_(speaks), log_path_(log_path) {
    if (speaks_ && !log_path_.empty()) {
        log_.open(log_path_, append ? std::ios::app : std::ios::trunc);
        if (!log_) {
            base::refuse(log_path_ +
                         ": the log (output.log) cannot be written: " + std::strerror(errno));
        }
    }
}

void Progress::say(const std::string& line) const {
    if (speaks_) {
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
    }
}

void Progress::tell(const State& s) {
    const double loss = s.scored_tokens > 0 ? s.nll / static_cast<double>(s.scored_tokens) : NAN;
    char line[160];
    std::snprintf(line, sizeof(line),
                  "pass %lld of %lld: %lld of %lld tokens scored, loss %.4f nat, %.0f tokens/s",
                  static_cast<long long>(s.passes_done), static_cast<long long>(s.passes),
                  static_cast<long long>(s.scored_tokens),
                  static_cast<long long>(s.all_scored_tokens), loss, s.tokens_per_s);
    say(line);
    log({{"event", "progress"},
         {"passes_done", s.passes_done},
         {"passes", s.passes},
         {"scored_tokens", s.scored_tokens},
         {"loss", loss},
         {"run_s", s.run_s},
         {"tokens_per_second", s.tokens_per_s}});
}

void Progress::log(nlohmann::json object) {
    if (!log_.is_open()) {
        return;
    }
    log_ << object.dump() << std::endl; // flushed: whoever follows the file sees whole lines
    if (!log_) {
        base::fail(log_path_ + ": the log could not be written; is the disk full?");
    }
    ++lines_logged_;
}

} // namespace foregather::job
