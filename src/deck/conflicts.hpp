// SPDX-License-Identifier: Apache-2.0
// Refuses pairs of values that cannot go together whatever the machine, model and build.
// What needs any of those is refused by the job.
#pragma once

#include <string>
#include <vector>

#include <foregather/deck/deck.hpp>

namespace foregather::deck {

// One message for each pair, with the places of both keys.
std::vector<std::string> conflicts(const Deck& deck);

} // namespace foregather::deck
