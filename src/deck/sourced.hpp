// SPDX-License-Identifier: Apache-2.0
// Quantities that say where they come from, in one value: "42 GB/s, published: the data sheet".
// Which keys take one, and of what, is in the key table.
#pragma once

#include <string>

#include "convert.hpp"

namespace foregather::deck {

// The plain form is "42000000000, published: the data sheet": the number in the unit of the rule's
// dimension. An empty value is a quantity that is not given.
Clean cleaned_sourced(const Rule& rule, const std::string& value);

// "a size in GiB, GB, ... with its basis (...) and source: ..."
std::string described_sourced(const Rule& rule);

// Of a plain form.
Sourced sourced_of(const std::string& plain);

} // namespace foregather::deck
