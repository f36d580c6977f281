// SPDX-License-Identifier: Apache-2.0
// What a results file says of where it comes from.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include <foregather/deck/ledger.hpp>
#include <foregather/io/earlier.hpp>
#include <foregather/io/table.hpp>
#include <foregather/job/job.hpp>
#include <foregather/mesh/topology.hpp>

#include "inputs.hpp"
#include "memory_plan.hpp"

namespace foregather::job {

// What keys that were `auto` became, by key.
using Became = std::map<std::string, std::string>;

// Known at the start: deck, versions, hosts, environment, inputs.
std::vector<io::Text> provenance_texts(const deck::Deck& deck, const Start& start,
                                       const Became& became = {});
// Of these, the deck that repeats the run.
io::Text effective_text(const deck::Deck& deck, const Became& became);
// Of the last of several starts: what it read, beside that of the first.
std::vector<io::Text> resumed_texts(const deck::Deck& deck, const Start& start,
                                    const Became& became = {});
io::RunStart run_start(const Start& start, int ranks, std::int64_t packs_before,
                       std::int64_t steps_before = 0);
// A file that was read: its size and time of change, the digest that is known of it, and what of it
// was compared with checksums that it holds ("": nothing).
struct InputRow {
    std::string path;
    std::int64_t bytes = 0; // -1: it is not there any more
    std::string modified, sha256, verified;
};
InputRow input_row(const std::string& path, const std::string& sha256,
                   const std::string& verified = "");
// A text inside of a file: "/config" of the weights. sealed: it was compared with a checksum.
InputRow text_row(const InputRow& file, const std::string& name, const std::string& text,
                  bool sealed);
std::vector<InputRow> input_rows(const Inputs& inputs);
// devices: of each rank, in words.
std::vector<io::Table> provenance_tables(const std::vector<InputRow>& inputs,
                                         const mesh::Topology& topology,
                                         const std::vector<std::string>& devices);
// Known at the end: the ledger, and choices that the program made, with their reasons.
io::Table ledger_table(const deck::Ledger& ledger);
io::Table choices_table(const std::vector<std::array<std::string, 3>>& name_value_why);
io::Text finished_text();

} // namespace foregather::job
