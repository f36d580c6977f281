// SPDX-License-Identifier: Apache-2.0
// The shape of the key table: what one line says about a key.
// The lines themselves are in sections.cpp; how a value is checked against its rule is in
// convert.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <foregather/deck/deck.hpp>

namespace foregather::deck {

enum class Kind { choice, flag, text, path, whole, size, time, rate, real, wholes, words, sourced };

// What values a key takes.
struct Rule {
    Kind kind = Kind::text;
    // choice, words: words with a blank between; path: words that are none; whole: "auto" is taken
    // sourced: its dimension
    std::string_view choices{};
    std::int64_t low = 0;  // whole, wholes; size: bytes; text, path: least length in bytes
    std::int64_t high = 0; // the same, inclusive
    // time: seconds; rate: bytes per second, 0 (off) also taken; real; sourced: of its dimension
    double real_low = 0;
    double real_high = 0; // the same, inclusive
};

constexpr std::int64_t most_int = std::numeric_limits<int>::max();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

constexpr Rule one_of(std::string_view choices) { return {Kind::choice, choices}; }
constexpr Rule boolean() { return {Kind::flag}; }
constexpr Rule whole(std::int64_t low, std::int64_t high) { return {Kind::whole, "", low, high}; }
// deck::automatic for `auto`.
constexpr Rule whole_or_auto(std::int64_t low, std::int64_t high) {
    return {Kind::whole, "auto", low, high};
}
// Lists: commas between, no entry twice, at most most_entries; an empty value is an empty list.
constexpr std::size_t most_entries = 64;
constexpr Rule list_of_whole(std::int64_t low, std::int64_t high) {
    return {Kind::wholes, "", low, high};
}
constexpr Rule list_of(std::string_view choices) { return {Kind::words, choices}; }
// A quantity with its basis and source; dimension: bytes, bytes/s, flop/s, s or 1.
constexpr Rule sourced(std::string_view dimension, double low, double high) {
    return {Kind::sourced, dimension, 0, 0, low, high};
}
constexpr Rule byte_size(std::int64_t low, std::int64_t high) {
    return {Kind::size, "", low, high};
}
constexpr Rule duration(double low, double high) { return {Kind::time, "", 0, 0, low, high}; }
constexpr Rule byte_rate(double low, double high) { return {Kind::rate, "", 0, 0, low, high}; }
constexpr Rule real(double low, double high) { return {Kind::real, "", 0, 0, low, high}; }
constexpr Rule line_of_text(std::int64_t least, std::int64_t high) {
    return {Kind::text, "", least, high};
}
// 4095 bytes is the longest path that Linux opens.
constexpr Rule path() { return {Kind::path, "", 1, 4095}; }
constexpr Rule path_or_none() { return {Kind::path, "", 0, 4095}; }
constexpr Rule word_or_path(std::string_view words) { return {Kind::path, words, 1, 4095}; }

// The member that a key sets.
using Field = std::variant<std::string*, bool*, int*, std::int64_t*, double*, base::Bytes*,
                           std::vector<std::int64_t>*, std::vector<std::string>*, Sourced*>;

// Which jobs of a key cannot do without it: none, all of them, or those named.
constexpr std::string_view optional = "";
constexpr std::string_view required = "all";

struct Row {
    std::string_view key; // "section.name"
    Field (*field)(Sections&);
    Rule rule;
    std::string_view unit;
    std::string_view jobs; // "all" or words with a blank between
    std::string_view required_by;
    Mark mark;
    std::string_view help;

    constexpr std::string_view section() const { return key.substr(0, key.find('.')); }
    constexpr std::string_view name() const { return key.substr(key.find('.') + 1); }
};

// Every key, sections together, in the order in which help and templates show them.
std::span<const Row> table();
// The part of it that is training's alone.
std::span<const Row> training_rows();
// That of bench alone.
std::span<const Row> bench_rows();
// The part of it that is planning's alone: plan and machine.
std::span<const Row> planning_rows();

// nullptr if there is no such key.
const Row* find_row(std::string_view key);

std::vector<std::string> all_keys();
std::vector<std::string> all_sections();

std::vector<std::string> all_jobs();

} // namespace foregather::deck
