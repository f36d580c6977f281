// SPDX-License-Identifier: Apache-2.0
// Numbers with a unit behind them, as decks write them: reading one, and writing it back exactly.
// Which units a key takes is decided where its rule is checked.
#pragma once

#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "text.hpp"

namespace foregather::deck {

// A unit and what one of it is in bytes, seconds, bytes per second and so on.
template <class Number>
struct Unit {
    std::string_view name;
    Number factor;
};

// A number at the head of a value, and the unit after it.
template <class Number>
struct Measure {
    Number number;
    std::string_view unit;
};

enum class Fault { none, not_a_number, out_of_range };

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A digit must come first: from_chars alone would take "inf" and "nan".
template <class Number>
Fault split(std::string_view value, Measure<Number>& measure) {
    const bool negative = value.starts_with('-');
    if (value.size() <= (negative ? 1u : 0u) || !is_digit(value[negative ? 1 : 0])) {
        return Fault::not_a_number;
    }
    const char* end = value.data() + value.size();
    const auto [rest, error] = std::from_chars(value.data(), end, measure.number);
    measure.unit = trimmed({rest, static_cast<std::size_t>(end - rest)});
    if (error == std::errc::result_out_of_range) {
        return Fault::out_of_range;
    }
    return negative && measure.number == 0 ? Fault::not_a_number : Fault::none;
}

// What one of `unit` is; nullopt if it is not in the list.
template <class Number>
std::optional<Number> factor_of(std::span<const Unit<Number>> units, std::string_view unit) {
    for (const Unit<Number>& known : units) {
        if (known.name == unit) {
            return known.factor;
        }
    }
    return std::nullopt;
}

// The shortest text that reads back as the same number.
inline std::string exact(double number) {
    std::array<char, 32> buffer{};
    const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
    return {buffer.data(), end};
}

} // namespace foregather::deck
