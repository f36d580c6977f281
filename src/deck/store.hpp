// SPDX-License-Identifier: Apache-2.0
// Puts checked values into the sections by means of Boost.Program_options.
// Everything that could be wrong with a value has been refused before.
#pragma once

#include <map>
#include <string>

#include <foregather/deck/sections.hpp>

namespace foregather::deck {

// Key to value in the plain form of convert.hpp. Keys that are absent keep their present value.
void store(const std::map<std::string, std::string>& canonical, Sections& sections);

} // namespace foregather::deck
