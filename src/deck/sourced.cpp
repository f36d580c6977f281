// SPDX-License-Identifier: Apache-2.0
// Reads a number with its unit, its basis and its source.
#include "sourced.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

#include "nearest.hpp"
#include "numbers.hpp"

namespace foregather::deck {

namespace {

struct Dimension {
    std::string_view name; // as rules have it
    std::string_view words;
    std::vector<Unit<double>> units;
};

const std::vector<Dimension>& dimensions() {
    static const std::vector<Dimension> all = {
        {"bytes",
         "a size in GiB, MiB, KiB, GB or MB",
         {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}}},
        {"bytes/s",
         "a rate in TB/s, GB/s, MB/s, Gb/s or Mb/s",
         {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"Gb/s", 1.25e8}, {"Mb/s", 1.25e5}}},
        {"flop/s", "a rate in Tflop/s or Gflop/s", {{"Tflop/s", 1e12}, {"Gflop/s", 1e9}}},
        {"s", "a time in s, ms or us", {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}}},
        {"1", "a number", {{"", 1}}}};
    return all;
}

const Dimension& dimension_of(const Rule& rule) {
    return *std::find_if(dimensions().begin(), dimensions().end(),
                         [&](const Dimension& d) { return d.name == rule.choices; });
}

const std::vector<std::string> bases = {"measured", "published", "assumed", "fitted"};

constexpr const char* how = "behind the number, after a comma, stands its basis (measured, "
                            "published, assumed or fitted), a colon, and where it comes from";

Clean refused(const Rule& rule, std::string_view number, bool range) {
    return {"", std::string(range ? "is out of range: it" : "") + (range ? " takes " : "takes ") +
                    described_sourced(rule) + ", not " + quoted(number)};
}

} // namespace

Clean cleaned_sourced(const Rule& rule, const std::string& value) {
    if (value.empty()) {
        return {};
    }
    const std::size_t comma = value.find(',');
    const std::string_view head = trimmed(std::string_view(value).substr(0, comma));
    Measure<double> measure{};
    const Fault fault = split(head, measure);
    const auto& units = dimension_of(rule).units;
    const auto factor = fault == Fault::not_a_number
                            ? std::nullopt
                            : factor_of(std::span<const Unit<double>>(units), measure.unit);
    if (!factor) {
        return refused(rule, head, false);
    }
    const double number = measure.number * *factor;
    if (fault != Fault::none || !(number >= rule.real_low && number <= rule.real_high)) {
        return refused(rule, head, true);
    }
    const std::string_view behind =
        comma == std::string::npos ? "" : trimmed(std::string_view(value).substr(comma + 1));
    const std::size_t colon = behind.find(':');
    const std::string basis(trimmed(behind.substr(0, colon)));
    const std::string source(colon == std::string_view::npos ? ""
                                                             : trimmed(behind.substr(colon + 1)));
    if (basis.empty()) {
        return {"", "has neither basis nor source: " + std::string(how)};
    }
    if (std::find(bases.begin(), bases.end(), basis) == bases.end()) {
        const std::string meant = nearest(lower(basis), bases);
        return {"", "has the unknown basis " + quoted(basis) +
                        (meant.empty() ? "" : " (did you mean " + meant + "?)") + ": " + how};
    }
    if (source.empty()) {
        return {"", "does not say where it comes from: " + std::string(how)};
    }
    return {exact(number) + ", " + basis + ": " + source, ""};
}

std::string described_sourced(const Rule& rule) {
    const Dimension& dimension = dimension_of(rule);
    return std::string(dimension.words) + ", " + exact(rule.real_low) + " to " +
           exact(rule.real_high) + (dimension.name == "1" ? "" : " " + std::string(rule.choices)) +
           ", with its basis and source, as in \"" +
           (dimension.name == "1" ? "0.5" : "2 " + std::string(dimension.units.front().name)) +
           ", assumed: a guess\"";
}

Sourced sourced_of(const std::string& plain) {
    Sourced result;
    const std::size_t comma = plain.find(',');
    if (comma == std::string::npos) {
        return result;
    }
    std::from_chars(plain.data(), plain.data() + comma, result.value);
    const std::size_t colon = plain.find(':', comma);
    result.basis = plain.substr(comma + 2, colon - comma - 2);
    result.source = plain.substr(colon + 2);
    return result;
}

} // namespace foregather::deck
