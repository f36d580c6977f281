// SPDX-License-Identifier: Apache-2.0
// Checks the text of a value against the rule of its key and puts it in the plain form that the
// typed store takes; says in words what a rule takes. It knows no key and no place in a deck.
#include "convert.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "nearest.hpp"
#include "numbers.hpp"
#include "sourced.hpp"
#include "text.hpp"

namespace foregather::deck {

namespace {

constexpr std::array<Unit<std::int64_t>, 3> size_units{
    {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}};
constexpr std::array<Unit<double>, 3> time_units{{{"h", 3600}, {"min", 60}, {"s", 1}}};
constexpr std::array<Unit<double>, 4> rate_units{
    {{"GB/s", 1e9}, {"Gb/s", 1.25e8}, {"MB/s", 1e6}, {"Mb/s", 1.25e5}}};

std::string takes(const Rule& rule, const std::string& value) {
    return "takes " + described(rule) + ", not " + quoted(value);
}

Clean refused(const Rule& rule, const std::string& value, Fault fault) {
    const std::string begin = fault == Fault::out_of_range ? "is out of range: it " : "";
    return {"", begin + takes(rule, value)};
}

Clean clean_choice(const Rule& rule, const std::string& value) {
    const std::vector<std::string> choices = words_of(rule.choices);
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) {
        return {value, ""};
    }
    const std::string meant = nearest(lower(value), choices);
    return {"", takes(rule, value) + (meant.empty() ? "" : " (did you mean " + meant + "?)")};
}

Clean clean_boolean(const Rule& rule, const std::string& value) {
    return value == "true" || value == "false" ? Clean{value, ""} : Clean{"", takes(rule, value)};
}

Clean clean_text(const Rule& rule, const std::string& value) {
    const auto length = static_cast<std::int64_t>(value.size());
    if (length < rule.low) {
        return {"", "needs a value"};
    }
    return length <= rule.high ? Clean{value, ""} : refused(rule, value, Fault::out_of_range);
}

Clean clean_whole(const Rule& rule, const std::string& value) {
    if (rule.kind == Kind::whole && !rule.choices.empty() && value == rule.choices) {
        return {std::to_string(automatic), ""};
    }
    Measure<std::int64_t> measure{};
    Fault fault = split(value, measure);
    std::int64_t factor = 1;
    // The unit is judged first: "8 parsecs" is of the wrong type wherever 8 would lie.
    if (fault != Fault::not_a_number && !measure.unit.empty()) {
        const auto known =
            rule.kind == Kind::size
                ? factor_of(std::span<const Unit<std::int64_t>>(size_units), measure.unit)
                : std::nullopt;
        fault = known ? fault : Fault::not_a_number;
        factor = known.value_or(1);
    }
    if (fault != Fault::none) {
        return refused(rule, value, fault);
    }
    if (measure.number < rule.low || measure.number > rule.high / factor) {
        return refused(rule, value, Fault::out_of_range);
    }
    return {std::to_string(measure.number * factor), ""};
}

Clean clean_real(const Rule& rule, const std::string& value) {
    Measure<double> measure{};
    Fault fault = split(value, measure);
    const bool is_rate = rule.kind == Kind::rate;
    std::optional<double> factor;
    if (fault != Fault::not_a_number) {
        const auto units = is_rate                   ? std::span<const Unit<double>>(rate_units)
                           : rule.kind == Kind::real ? std::span<const Unit<double>>()
                                                     : std::span<const Unit<double>>(time_units);
        factor = factor_of(units, measure.unit);
        // A bare number is itself or a time in seconds; a bare rate could be bits or bytes, so only
        // 0 is.
        if (!factor && measure.unit.empty() && (!is_rate || measure.number == 0)) {
            factor = 1;
        }
        fault = factor ? fault : Fault::not_a_number;
    }
    if (fault != Fault::none) {
        return refused(rule, value, fault);
    }
    const double number = measure.number * *factor;
    const bool off = is_rate && number == 0;
    if (!off && !(number >= rule.real_low && number <= rule.real_high)) {
        return refused(rule, value, Fault::out_of_range);
    }
    return {exact(number), ""};
}

// What is wrong with an entry is told of the list: the entry is in quotes.
Clean clean_list(const Rule& rule, const std::string& value) {
    const Rule one = rule.kind == Kind::wholes ? whole(rule.low, rule.high) : one_of(rule.choices);
    std::vector<std::string> kept;
    for (const std::string& entry : entries_of(value)) {
        const Clean clean =
            rule.kind == Kind::wholes ? clean_whole(one, entry) : clean_choice(one, entry);
        if (!clean.refusal.empty()) {
            const bool range = clean.refusal.starts_with("is out of range");
            return {"", std::string(range ? "is out of range: it " : "") + takes(rule, entry)};
        }
        if (std::find(kept.begin(), kept.end(), clean.canonical) != kept.end()) {
            return {"", "has " + quoted(entry) + " twice"};
        }
        kept.push_back(clean.canonical);
    }
    if (kept.size() > most_entries) {
        return {"", "has " + std::to_string(kept.size()) + " entries; it takes at most " +
                        std::to_string(most_entries)};
    }
    return {joined(kept, ","), ""};
}

// "auto, host or cuda"
std::string listed(const std::vector<std::string>& choices) {
    const std::vector<std::string> first(choices.begin(), choices.end() - 1);
    return joined(first, ", ") + (first.empty() ? "" : " or ") + choices.back();
}

std::string range_of(const Rule& rule) {
    const std::string low = std::to_string(rule.low);
    return rule.high == most ? low + " or more" : low + " to " + std::to_string(rule.high);
}

} // namespace

Clean cleaned(const Rule& rule, const std::string& value) {
    switch (rule.kind) {
    case Kind::text:
    case Kind::path:
        return clean_text(rule, value);
    case Kind::wholes:
    case Kind::words:
        return clean_list(rule, value);
    case Kind::sourced:
        return cleaned_sourced(rule, value);
    default:
        break;
    }
    if (value.empty()) {
        return {"", "needs a value: it takes " + described(rule)};
    }
    switch (rule.kind) {
    case Kind::choice:
        return clean_choice(rule, value);
    case Kind::flag:
        return clean_boolean(rule, value);
    case Kind::whole:
    case Kind::size:
        return clean_whole(rule, value);
    default:
        return clean_real(rule, value);
    }
}

std::string described(const Rule& rule) {
    switch (rule.kind) {
    case Kind::choice:
        return listed(words_of(rule.choices));
    case Kind::flag:
        return "true or false";
    case Kind::text:
        return "a text of at most " + std::to_string(rule.high) + " bytes";
    case Kind::path:
        return (rule.choices.empty() ? "" : joined(words_of(rule.choices), ", ") + " or ") +
               "a path of at most " + std::to_string(rule.high) + " bytes";
    case Kind::whole:
        return (rule.choices.empty() ? "" : std::string(rule.choices) + " or ") +
               "a whole number, " + range_of(rule);
    case Kind::wholes:
        return "whole numbers, " + range_of(rule) + ", commas between";
    case Kind::words:
        return "a list of " + joined(words_of(rule.choices), ", ") + ", commas between";
    case Kind::size:
        return "a size in whole bytes, KiB, MiB or GiB, " + range_of(rule) + " bytes";
    case Kind::sourced:
        return described_sourced(rule);
    case Kind::real:
        return "a number, " + exact(rule.real_low) + " to " + exact(rule.real_high);
    case Kind::time:
        return "a time in s (also without unit), min or h, " + exact(rule.real_low) + " to " +
               exact(rule.real_high) + " s";
    default:
        return "a rate in MB/s, GB/s, Mb/s or Gb/s, " + exact(rule.real_low / 1e6) + " MB/s to " +
               exact(rule.real_high / 1e9) + " GB/s, or 0";
    }
}

std::string written(const Rule& rule, Field field) {
    if (auto* const* text = std::get_if<std::string*>(&field)) {
        return **text;
    }
    if (auto* const* truth = std::get_if<bool*>(&field)) {
        return **truth ? "true" : "false";
    }
    if (auto* const* number = std::get_if<int*>(&field)) {
        return **number == automatic && !rule.choices.empty() ? std::string(rule.choices)
                                                              : std::to_string(**number);
    }
    if (auto* const* numbers = std::get_if<std::vector<std::int64_t>*>(&field)) {
        std::vector<std::string> entries;
        for (const std::int64_t number : **numbers) {
            entries.push_back(std::to_string(number));
        }
        return joined(entries, ", ");
    }
    if (auto* const* words = std::get_if<std::vector<std::string>*>(&field)) {
        return joined(**words, ", ");
    }
    if (auto* const* number = std::get_if<std::int64_t*>(&field)) {
        return std::to_string(**number);
    }
    if (auto* const* bytes = std::get_if<base::Bytes*>(&field)) {
        const std::int64_t count = (*bytes)->count;
        for (const auto& unit : size_units) {
            if (count != 0 && count % unit.factor == 0) {
                return std::to_string(count / unit.factor) + " " + std::string(unit.name);
            }
        }
        return std::to_string(count);
    }
    if (rule.kind == Kind::sourced) {
        return ""; // none has a default
    }
    const double number = *std::get<double*>(field);
    if (rule.kind == Kind::rate) {
        return number == 0 ? "0" : exact(number / 1e6) + " MB/s";
    }
    return rule.kind == Kind::real ? exact(number) : exact(number) + " s";
}

} // namespace foregather::deck
