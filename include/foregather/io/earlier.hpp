// SPDX-License-Identifier: Apache-2.0
// What an earlier run left of a results file, and the record of starts that is kept in it.
// Whether a run may go on with it is decided by the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/io/table.hpp>

namespace foregather::io {

// The columns of /train, of steps that follow each other.
struct LossHistory {
    std::vector<std::int64_t> step;
    std::vector<double> loss;          // nat; NaN or infinite where the step was not applied
    std::vector<double> gradient_norm; // before clipping
    std::vector<double> learning_rate;
    std::vector<std::int64_t> tokens; // scored targets of the step, over all ranks

    friend bool operator==(const LossHistory&, const LossHistory&) = default;
};

// The columns of /evaluation.
struct EvaluationHistory {
    std::vector<std::int64_t> step;   // steps taken before it
    std::vector<double> loss;         // nat
    std::vector<std::int64_t> tokens; // scored

    friend bool operator==(const EvaluationHistory&, const EvaluationHistory&) = default;
};

// One start of a run: a row of /provenance/starts, and in the end of /provenance/runs.
struct RunStart {
    std::string started; // UTC
    std::int64_t ranks = 0;
    std::int64_t packs_before = 0; // score: that were in the file already
    std::string command_line;      // its first bytes
    std::int64_t steps_before = 0; // train: that were taken already
};

// What makes two runs one: a row of /provenance/identity.
struct IdentityRow {
    std::string name, value;
    bool told = false; // a change is told; else it is refused
};

struct Earlier {
    std::string unusable; // why it cannot be read; "" if it can
    bool foreign = false; // an HDF5 file of something else
    bool complete = false;
    // Of a complete one of scores: how its run ended.
    std::int64_t not_finite_documents = 0;
    std::vector<std::string> not_honoured; // keys
    std::string verdict;                   // on the forward prefetch
    std::vector<std::uint8_t> packs_done;
    std::vector<IdentityRow> identity;
    std::vector<RunStart> starts;
    LossHistory steps; // of a training run, those that were run
};
// Reads a file that exists, by this process alone. Throws Error(failed) only when somebody changes
// it meanwhile.
Earlier read_earlier(const std::string& path);

// Starts have room from the beginning, so that a later one changes no metadata: of more starts than
// these the last one stands in the last row. `starts`: at least one.
inline constexpr std::int64_t most_starts = 64;
Table starts_table(const std::vector<RunStart>& starts);
Table runs_table(const std::vector<RunStart>& starts); // as many rows as starts
Table identity_table(const std::vector<IdentityRow>& rows);
// Writes a row into /provenance/starts of a file that this process has open for writing.
void write_start(const File& file, std::int64_t row, const RunStart& start);

} // namespace foregather::io
