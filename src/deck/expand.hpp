// SPDX-License-Identifier: Apache-2.0
// Replaces ${NAME} in path values by environment variables.
// It reads no environment: the values are handed over.
#pragma once

#include <string>

#include <foregather/deck/deck.hpp>

namespace foregather::deck {

struct Expansion {
    std::string text;
    std::string refusal; // empty: expanded; else completes "output.file ..."
};

// A '$' can only begin ${NAME}; a variable's value may hold none, nor what no deck could hold.
Expansion expanded(const std::string& value, const Variables& variables);

} // namespace foregather::deck
