// SPDX-License-Identifier: Apache-2.0
// What a plan says: a table for a person, tables for the results file.
#pragma once

#include <string>
#include <vector>

#include <foregather/deck/deck.hpp>
#include <foregather/io/table.hpp>

#include "plan_sweep.hpp"

namespace foregather::job {

struct PlanFacts {
    const deck::Deck& deck;
    const PlannedModel& model;
    const Sweep& sweep;
    const TimeSource& source;

    std::string basis() const; // of all times: the least certain of any row
};

std::string plan_text(const PlanFacts& facts, const std::vector<std::string>& notes);

// /plan/rows, one row a setting, and /plan/units, one row a unit of each of Sweep::units.
std::vector<io::Table> plan_tables(const PlanFacts& facts);

} // namespace foregather::job
