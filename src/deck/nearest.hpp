// SPDX-License-Identifier: Apache-2.0
// The known name that a user most likely meant by an unknown one.
// It decides what is close enough to be worth a hint, not what the hint says.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace foregather::deck {

// Edits (insert, delete, replace, swap of two neighbours) that turn `a` into `b`: the Damerau-
// Levenshtein distance in its restricted form (no piece is edited twice).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The only one of `known` that begins with `given`, else the closest if at most a third of its
// letters (or one) differ, else "". Of equally close ones, the first.
std::string nearest(std::string_view given, const std::vector<std::string>& known);

} // namespace foregather::deck
