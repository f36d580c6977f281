// SPDX-License-Identifier: Apache-2.0
// Small questions about pieces of text that several files of this room ask.
// It knows no key and no deck.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <foregather/base/printable.hpp>

namespace foregather::deck {

inline bool is_blank(char c) { return c == ' ' || c == '\t'; }

// Without blanks (space, tab) at either end.
std::string_view trimmed(std::string_view text);

// ASCII letters in lower case; other bytes as they are.
std::string lower(std::string_view text);

// "forward-prefetch" is "forward_prefetch": keys and sections are compared in this form.
std::string underscored(std::string_view text);

std::string joined(const std::vector<std::string>& parts, std::string_view between);

// The words of a text, blanks between.
std::vector<std::string> words_of(std::string_view text);

// The entries of a list with commas between, blanks at their ends left out; none of an empty text.
std::vector<std::string> entries_of(std::string_view list);

using base::is_utf8;
using base::printable;

// printable(text) in double quotes.
std::string quoted(std::string_view text);

// "[name]"
std::string bracketed(std::string_view name);

// Words wrapped to lines of at most `width` bytes, each begun by `indent`, each ended by a newline.
std::string wrapped(std::string_view text, std::string_view indent, std::size_t width);

} // namespace foregather::deck
