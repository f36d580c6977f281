// SPDX-License-Identifier: Apache-2.0
// Finds the line of the key table that a deck or an override means, or says what may have been
// meant instead. It judges names only, not values.
#pragma once

#include <set>
#include <string>

#include "reader.hpp"
#include "table.hpp"

namespace foregather::deck {

struct Match {
    const Row* row = nullptr;
    std::string complaint;         // without place; empty if row is set
    std::set<std::string> meant{}; // keys that the complaint hints at
};

// `section` and `name` underscored, as the reader gives them; section "" is before any section.
Match match_key(const std::string& section, const std::string& name);

// Empty if there is such a section; else the complaint, without place.
std::string section_complaint(const std::string& section);

} // namespace foregather::deck
