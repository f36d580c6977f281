// SPDX-License-Identifier: Apache-2.0
// Reads a deck, or the command line's --section.key=value words, into entries with their places.
// It decides what is a section, a key, a value and a comment, not which keys exist.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foregather::deck {

// An error with its place; told in the order of the lines of the deck, then the command line.
struct Problem {
    int line = 0;
    std::string message; // place included
};

constexpr int command_line_order = std::numeric_limits<int>::max() - 1;

struct Entry {
    // Underscored; "" before any section, nullopt after a section line that could not be read.
    std::optional<std::string> section;
    std::string name;  // underscored
    std::string value; // without blanks at its ends and without comment
    std::string place; // "score.deck:14" or "command line"
    int line = 0;
};

struct SectionLine {
    std::string name;
    std::string place;
    int line = 0;
};

struct Reading {
    std::vector<Entry> entries;
    std::vector<SectionLine> sections;
    std::vector<Problem> problems;
    bool unreadable = false; // not text: nothing can be said of what is missing
};

// `deck_name` begins each place. Takes LF and CRLF line ends and a byte order mark; a NUL byte ends
// the reading with one problem.
Reading read_deck(std::string_view text, const std::string& deck_name);

// Each override is "--section.key=value".
Reading read_overrides(const std::vector<std::string>& overrides);

// Why a deck could not hold `value` as it is; empty if it could. (There is no quoting.)
std::string plain_refusal(std::string_view value);

} // namespace foregather::deck
