// SPDX-License-Identifier: Apache-2.0
// What an earlier run left of a results file, and the record of starts that is kept in it.
// Whether a run may go on with it is decided by the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/io/table.hpp>

namespace foregather::io {

// One start of a run: a row of /provenance/starts, and in the end of /provenance/runs.
struct RunStart {
    std::string started; // UTC
    std::int64_t ranks = 0;
    std::int64_t packs_before = 0; // that were in the file already
    std::string command_line;      // its first bytes
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
    // Of a complete one: how its run ended.
    std::int64_t not_finite_documents = 0;
    std::vector<std::string> not_honoured; // keys
    std::string verdict;                   // on the forward prefetch
    std::vector<std::uint8_t> packs_done;
    std::vector<IdentityRow> identity;
    std::vector<RunStart> starts;
};
// Reads a file that exists, by this process alone; never throws.
Earlier read_earlier(const std::string& path);

// Starts have room from the beginning, so that a later one changes no metadata: of more starts than
// these the last one stands in the last row.
inline constexpr std::int64_t most_starts = 64;
Table starts_table(const RunStart& first);
Table runs_table(const std::vector<RunStart>& starts); // as many rows as starts
Table identity_table(const std::vector<IdentityRow>& rows);
// Writes a row into /provenance/starts of a file that this process has open for writing.
void write_start(const File& file, std::int64_t row, const RunStart& start);

} // namespace foregather::io
