// SPDX-License-Identifier: Apache-2.0
// Refuses values that cannot go together, or can do nothing, whatever the machine, model and build.
// What needs any of those is refused by the job.
#pragma once

#include <string>
#include <vector>

#include <foregather/deck/deck.hpp>

namespace foregather::deck {

// One message for each, with the places of the keys.
std::vector<std::string> conflicts(const Deck& deck);

} // namespace foregather::deck
