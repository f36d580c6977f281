// SPDX-License-Identifier: Apache-2.0
// Small questions about pieces of text that several files of this room ask.
// It knows no key and no deck.
#include "text.hpp"

#include <algorithm>
#include <sstream>

namespace foregather::deck {

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_blank(text.front())) {
        text.remove_prefix(1);
    }
    while (!text.empty() && is_blank(text.back())) {
        text.remove_suffix(1);
    }
    return text;
}

std::string lower(std::string_view text) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return result;
}

std::string underscored(std::string_view text) {
    std::string result(text);
    std::replace(result.begin(), result.end(), '-', '_');
    return result;
}

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
    std::string result;
    for (const std::string& part : parts) {
        if (!result.empty()) {
            result += between;
        }
        result += part;
    }
    return result;
}

std::vector<std::string> words_of(std::string_view text) {
    std::istringstream stream{std::string(text)};
    std::vector<std::string> words;
    for (std::string word; stream >> word;) {
        words.push_back(word);
    }
    return words;
}

std::vector<std::string> entries_of(std::string_view list) {
    std::vector<std::string> entries;
    if (trimmed(list).empty()) {
        return entries;
    }
    for (;;) {
        const std::size_t comma = list.find(',');
        entries.emplace_back(trimmed(list.substr(0, comma)));
        if (comma == std::string_view::npos) {
            return entries;
        }
        list.remove_prefix(comma + 1);
    }
}

std::string quoted(std::string_view text) {
    std::string result(1, '"');
    result += printable(text);
    return result += '"';
}

std::string bracketed(std::string_view name) {
    std::string result(1, '[');
    result += name;
    return result += ']';
}

std::string wrapped(std::string_view text, std::string_view indent, std::size_t width) {
    std::string result;
    std::string line(indent);
    for (const std::string& word : words_of(text)) {
        const bool first = line.size() == indent.size();
        if (!first && line.size() + 1 + word.size() > width) {
            result += line + "\n";
            line = std::string(indent) + word;
        } else {
            line += (first ? "" : " ") + word;
        }
    }
    return result + line + "\n";
}

} // namespace foregather::deck
