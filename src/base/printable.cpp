// SPDX-License-Identifier: Apache-2.0
// What of a text from elsewhere may stand in a message or a file.
// It cuts and replaces; what the text means is its reader's affair.
#include <foregather/base/printable.hpp>

#include <algorithm>

namespace foregather::base {
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

} // namespace foregather::base
