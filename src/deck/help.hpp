// SPDX-License-Identifier: Apache-2.0
// The short text on how to start the program, for every place that shows it.
// The long texts are in deck.hpp.
#pragma once

#include <string>

namespace foregather::deck {

// Three lines, the last without line end.
std::string usage_text();

} // namespace foregather::deck
