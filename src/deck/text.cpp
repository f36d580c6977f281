// SPDX-License-Identifier: Apache-2.0
// Small questions about pieces of text that several files of this room ask.
// It knows no key and no deck.
#include "text.hpp"

#include <algorithm>
#include <sstream>

namespace foregather::deck {

namespace {

// Bytes of the well-formed UTF-8 sequence at the head of `text`, 0 if there is none
// (table 3-7 of the Unicode Standard).
std::size_t sequence_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto tail = [&](std::size_t i) {
        return i < text.size() && byte(i) >= 0x80 && byte(i) <= 0xBF;
    };
    const unsigned char first = byte(0);
    if (first < 0x80) {
        return 1;
    }
    if (first >= 0xC2 && first <= 0xDF) {
        return tail(1) ? 2 : 0;
    }
    if (first >= 0xE0 && first <= 0xEF) {
        const bool second =
            tail(1) && !(first == 0xE0 && byte(1) < 0xA0) && !(first == 0xED && byte(1) > 0x9F);
        return second && tail(2) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        const bool second =
            tail(1) && !(first == 0xF0 && byte(1) < 0x90) && !(first == 0xF4 && byte(1) > 0x8F);
        return second && tail(2) && tail(3) ? 4 : 0;
    }
    return 0;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

} // namespace

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

std::string printable(std::string_view text, std::size_t most) {
    std::string result;
    while (!text.empty()) {
        const std::size_t length = sequence_length(text);
        if (result.size() + std::max<std::size_t>(length, 1) > most) {
            return result + "...";
        }
        if (length == 0 || is_control(text.front())) {
            result += '?';
        } else {
            result += text.substr(0, length);
        }
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return result;
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

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = sequence_length(text);
        if (length == 0) {
            return false;
        }
        text.remove_prefix(length);
    }
    return true;
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
