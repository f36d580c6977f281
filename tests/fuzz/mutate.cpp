// SPDX-License-Identifier: Apache-2.0
// Each change is drawn evenly from a list. Values are those at the ends of ranges, where readers go
// wrong.
#include "mutate.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace foregather::fuzz {

namespace {

constexpr std::uint64_t awkward_numbers[] = {0,
                                             1,
                                             2,
                                             0x7F,
                                             0x80,
                                             0xFF,
                                             0x7FFF,
                                             0x8000,
                                             0xFFFF,
                                             0x7FFFFFFF,
                                             0x80000000,
                                             0xFFFFFFFF,
                                             0x7FFFFFFFFFFFFFFF,
                                             0x8000000000000000,
                                             0xFFFFFFFFFFFFFFFF,
                                             0x7FF0000000000000};

const char* const awkward_values[] = {"",
                                      "0",
                                      "-1",
                                      "1",
                                      "1e308",
                                      "1e-400",
                                      "nan",
                                      "inf",
                                      "-0",
                                      "0x10",
                                      "1.5",
                                      "9223372036854775807",
                                      "9223372036854775808",
                                      "18446744073709551616",
                                      "99999999999999999999999999",
                                      "1 TiB",
                                      "8 EiB",
                                      "1000000 h",
                                      "true",
                                      "none",
                                      "auto",
                                      "${HOME}",
                                      "${",
                                      "${NO_SUCH_VARIABLE}",
                                      "a, b, , c",
                                      "1, 2, 3, 4",
                                      "= =",
                                      "\xC3\xA9\xE2\x82\xAC",
                                      "\xC0\x80",
                                      "\xED\xA0\x80",
                                      "/",
                                      ".",
                                      "../../../../etc/passwd",
                                      "/dev/null",
                                      "[job]"};

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
        lines.push_back(text.substr(at, end - at));
        at = end;
    }
    return lines;
}

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += line;
    }
    return text;
}

void write_number(std::string& bytes, std::size_t at, Random& random) {
    const std::uint64_t number = awkward_numbers[below(random, std::size(awkward_numbers))];
    const std::size_t width = std::size_t{1} << below(random, 4);
    std::memcpy(bytes.data() + at, &number, std::min(width, bytes.size() - at));
}

void write_elsewhere(std::string& bytes, std::size_t at, Random& random) {
    const std::size_t from = below(random, bytes.size());
    const std::size_t n = std::min({1 + below(random, 64), bytes.size() - from, bytes.size() - at});
    const std::string piece = bytes.substr(from, n);
    bytes.replace(at, n, piece);
}

void change_bytes(std::string& bytes, std::size_t at, Random& random) {
    switch (below(random, 9)) {
    case 0:
    case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(random, 8)));
        break;
    case 2:
    case 3:
        bytes[at] = static_cast<char>(below(random, 256));
        break;
    case 4:
        write_number(bytes, at, random);
        break;
    case 5:
        write_elsewhere(bytes, at, random);
        break;
    case 6:
        bytes.erase(at, 1 + below(random, 16));
        break;
    case 7:
        bytes.insert(at, bytes.substr(below(random, bytes.size()), 1 + below(random, 16)));
        break;
    default:
        if (below(random, 2) == 0) {
            bytes.resize(at);
        } else {
            bytes.append(1 + below(random, 100), static_cast<char>(below(random, 256)));
        }
    }
}

// "key = value" with another value, its comment gone.
std::string with_value(const std::string& line, const std::string& value) {
    const std::size_t equals = line.find('=');
    return equals == std::string::npos ? value + "\n" : line.substr(0, equals + 1) + value + "\n";
}

std::size_t some_line(const std::vector<std::string>& lines, Random& random) {
    std::size_t at = 0;
    for (int tries = 0; tries < 4; ++tries) { // comments are many, and seldom matter
        at = below(random, lines.size());
        if (lines[at].front() != '#' && lines[at].front() != '\n') {
            break;
        }
    }
    return at;
}

void change_lines(std::vector<std::string>& lines, const std::vector<std::string>& others,
                  Random& random) {
    const std::size_t at = some_line(lines, random);
    const auto place = lines.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(random, 6)) {
    case 0:
        lines.insert(place, lines[some_line(lines, random)]);
        break;
    case 1:
        lines.erase(place);
        break;
    case 2:
        std::swap(lines[at], lines[some_line(lines, random)]);
        break;
    case 3: {
        const std::vector<std::string> from = lines_of(others[below(random, others.size())]);
        lines.insert(place, from[some_line(from, random)]);
        break;
    }
    default:
        lines[at] = with_value(lines[at], awkward_values[below(random, std::size(awkward_values))]);
    }
}

} // namespace

std::size_t below(Random& random, std::size_t end) { return random() % end; }

std::string changed_bytes(const std::string& original, const std::vector<Extent>& aims,
                          Random& random) {
    std::string bytes = original;
    for (std::size_t left = 1 + below(random, 3) / 2 * below(random, 3); left > 0; --left) {
        const Extent& aim = aims[below(random, aims.size())];
        const std::size_t at = aim.begin + below(random, aim.end - aim.begin);
        if (at < bytes.size()) {
            change_bytes(bytes, at, random);
        }
    }
    return bytes;
}

std::string changed_lines(const std::string& original, const std::vector<std::string>& others,
                          Random& random) {
    std::string text = original;
    for (std::size_t left = 1 + below(random, 4) / 3 * below(random, 3); left > 0 && !text.empty();
         --left) {
        std::vector<std::string> lines = lines_of(text);
        if (below(random, 3) > 0) {
            change_lines(lines, others, random);
        } else if (std::string& line = lines[some_line(lines, random)]; below(random, 40) > 0) {
            change_bytes(line, below(random, line.size()), random);
        } else {
            lines.resize(below(random, lines.size()) + 1); // the end is cut off
        }
        text = joined(lines);
    }
    return text;
}

} // namespace foregather::fuzz
