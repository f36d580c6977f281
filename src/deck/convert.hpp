// SPDX-License-Identifier: Apache-2.0
// Checks the text of a value against the rule of its key and puts it in the plain form that the
// typed store takes; says in words what a rule takes. It knows no key and no place in a deck.
#pragma once

#include <string>

#include "table.hpp"

namespace foregather::deck {

// A value in plain form (sizes in bytes, times in seconds, rates in bytes per second), or why not.
struct Clean {
    std::string canonical;
    std::string refusal; // empty: accepted; else completes "job.name ..."
};

// Numbers are decimal, whatever the locale; no infinity, no nan, none that a double cannot hold.
Clean cleaned(const Rule& rule, const std::string& value);

// What the rule takes: "a whole number, 0 to 64".
std::string described(const Rule& rule);

// The text that a deck would hold for the present value of `field`, which must be of the rule's
// type.
std::string written(const Rule& rule, Field field);

} // namespace foregather::deck
