// SPDX-License-Identifier: Apache-2.0
// What a results file says of where it comes from.
#pragma once

#include <array>
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

// Known at the start: deck, versions, hosts, environment, inputs.
std::vector<io::Text> provenance_texts(const deck::Deck& deck, const Start& start);
// Of the last of several starts: what it read, beside that of the first.
std::vector<io::Text> resumed_texts(const deck::Deck& deck, const Start& start);
io::RunStart run_start(const Start& start, int ranks, std::int64_t packs_before);
// devices: of each rank, in words.
std::vector<io::Table> provenance_tables(const Inputs& inputs, const mesh::Topology& topology,
                                         const std::vector<std::string>& devices);
// Known at the end: the ledger, and choices that the program made, with their reasons.
io::Table ledger_table(const deck::Ledger& ledger);
io::Table choices_table(const std::vector<std::array<std::string, 3>>& name_value_why);
io::Text finished_text();

} // namespace foregather::job
