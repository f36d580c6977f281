// SPDX-License-Identifier: Apache-2.0
// Lines while the job runs: on stdout now and then, and as JSON lines in output.log. Rank 0 writes;
// everyone else's object does nothing.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

namespace foregather::job {

class Progress {
public:
    // log_path empty: no log. append: lines go on behind those of an earlier start. Throws
    // Error(refused) when the log cannot be written.
    Progress(bool speaks, const std::string& log_path, bool append);

    struct State {
        std::int64_t passes_done = 0, passes = 0;
        std::int64_t scored_tokens = 0, all_scored_tokens = 0; // over all ranks
        double nll = 0;                                        // of those, nat
        double run_s = 0;                                      // since the first pass was enqueued
        double tokens_per_s = 0;                               // all tokens, over all ranks
    };
    // A line on stdout and one in the log.
    void tell(const State& state);
    // An object of its own in the log.
    void log(nlohmann::json object);

    // A line on stdout, by the rank that speaks.
    void say(const std::string& line) const;
    std::int64_t lines_logged() const { return lines_logged_; }

private:
    bool speaks_;
    std::string log_path_;
    std::ofstream log_;
    std::int64_t lines_logged_ = 0;
};

} // namespace foregather::job
