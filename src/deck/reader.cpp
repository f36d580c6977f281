// SPDX-License-Identifier: Apache-2.0
// Reads a deck, or the command line's --section.key=value words, into entries with their places.
// It decides what is a section, a key, a value and a comment, not which keys exist.
#include "reader.hpp"

#include <algorithm>

#include "text.hpp"

namespace foregather::deck {

namespace {

// The text up to a '#' that begins the line or follows a blank.
std::string_view without_comment(std::string_view line) {
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '#' && (i == 0 || is_blank(line[i - 1]))) {
            return line.substr(0, i);
        }
    }
    return line;
}

bool is_name(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-' || c == '.';
    });
}

class DeckReader {
public:
    explicit DeckReader(const std::string& deck_name)
        : deck_name_(printable(deck_name, deck_name.size())) {}

    // One line without its line end.
    void read(std::string_view line) {
        ++line_;
        if (line.find('\r') != std::string_view::npos) {
            complain("a carriage return within the line: lines end in LF or CRLF");
            return;
        }
        const std::string_view content = trimmed(without_comment(line));
        if (content.empty()) {
            return;
        }
        if (content.front() == '[') {
            read_section(content);
        } else {
            read_key(content);
        }
    }

    Reading take() { return std::move(reading_); }

private:
    void read_section(std::string_view content) {
        section_.reset();
        const std::string_view name =
            content.back() == ']' ? trimmed(content.substr(1, content.size() - 2)) : "";
        if (!is_name(name)) {
            complain(quoted(content) + " is not a section: write [name] alone");
            return;
        }
        section_ = underscored(name);
        reading_.sections.push_back({*section_, place(), line_});
    }

    void read_key(std::string_view content) {
        const std::size_t equals = content.find('=');
        const std::string_view name = trimmed(content.substr(0, equals));
        if (equals == std::string_view::npos || !is_name(name)) {
            complain(quoted(content) +
                     " is not a line of a deck: write [section], key = value or # comment");
            return;
        }
        reading_.entries.push_back({section_, underscored(name),
                                    std::string(trimmed(content.substr(equals + 1))), place(),
                                    line_});
    }

    void complain(const std::string& what) {
        reading_.problems.push_back({line_, place() + ": " + what});
    }

    std::string place() const { return deck_name_ + ":" + std::to_string(line_); }

    std::string deck_name_;
    int line_ = 0;
    std::optional<std::string> section_ = "";
    Reading reading_;
};

} // namespace

Reading read_deck(std::string_view text, const std::string& deck_name) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    const std::size_t nul = text.find('\0');
    if (nul != std::string_view::npos) {
        const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<long>(nul), '\n');
        Reading broken;
        broken.unreadable = true;
        broken.problems.push_back({1, printable(deck_name, deck_name.size()) + ":" +
                                          std::to_string(line) +
                                          ": a NUL byte: this is not a text file in UTF-8"});
        return broken;
    }
    if (text.starts_with(byte_order_mark)) {
        text.remove_prefix(byte_order_mark.size());
    }
    DeckReader reader(deck_name);
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        if (line.ends_with('\r')) {
            line.remove_suffix(1);
        }
        reader.read(line);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return reader.take();
}

Reading read_overrides(const std::vector<std::string>& overrides) {
    Reading reading;
    for (const std::string& word : overrides) {
        const std::string_view text = word;
        const std::size_t equals = text.find('=');
        const std::size_t dot = text.find('.');
        const bool shaped = text.starts_with("--") && equals != std::string_view::npos && dot > 2 &&
                            dot < equals && is_name(text.substr(2, equals - 2));
        if (!shaped) {
            reading.problems.push_back({command_line_order, "command line: " + quoted(text) +
                                                                " is not --section.key=value"});
            continue;
        }
        reading.entries.push_back({underscored(text.substr(2, dot - 2)),
                                   underscored(text.substr(dot + 1, equals - dot - 1)),
                                   std::string(trimmed(text.substr(equals + 1))), "command line",
                                   command_line_order});
    }
    return reading;
}

std::string plain_refusal(std::string_view value) {
    const auto is_control = [](char c) {
        return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
    };
    if (!is_utf8(value)) {
        return "is not text in UTF-8";
    }
    if (std::any_of(value.begin(), value.end(), is_control)) {
        return "holds a control character";
    }
    if (without_comment(value).size() != value.size()) {
        return "holds a # at its beginning or after a blank, which begins a comment in a deck";
    }
    return "";
}

} // namespace foregather::deck
