// SPDX-License-Identifier: Apache-2.0
// Finds the line of the key table that a deck or an override means, or says what may have been
// meant instead. It judges names only, not values.
#include "keys.hpp"

#include <algorithm>

#include "nearest.hpp"
#include "text.hpp"

namespace foregather::deck {

namespace {

bool is_section(std::string_view section) {
    const std::vector<std::string> sections = all_sections();
    return std::find(sections.begin(), sections.end(), section) != sections.end();
}

// Keys of that name in whatever section.
std::vector<std::string> keys_named(std::string_view name) {
    std::vector<std::string> keys;
    for (const Row& row : table()) {
        if (row.name() == name) {
            keys.emplace_back(row.key);
        }
    }
    return keys;
}

// "forward_prefetch" is "forward" and "prefetch".
std::vector<std::string> parts_of(std::string_view name) {
    std::string spaced(name);
    std::replace(spaced.begin(), spaced.end(), '_', ' ');
    return words_of(spaced);
}

// Keys whose name has a long word in common with `name`: "prefetch_depth" for "forward_prefetch".
std::vector<std::string> keys_sharing_a_word(std::string_view name) {
    constexpr std::size_t long_word = 5;
    const std::vector<std::string> given = parts_of(name);
    std::vector<std::string> keys;
    for (const Row& row : table()) {
        const std::vector<std::string> known = parts_of(row.name());
        if (std::any_of(given.begin(), given.end(), [&](const std::string& part) {
                return part.size() >= long_word &&
                       std::find(known.begin(), known.end(), part) != known.end();
            })) {
            keys.emplace_back(row.key);
        }
    }
    return keys;
}

std::string known_around(const std::string& section) {
    if (!is_section(section)) {
        return "sections: " + joined(all_sections(), ", ");
    }
    std::vector<std::string> names;
    for (const Row& row : table()) {
        if (row.section() == section) {
            names.emplace_back(row.name());
        }
    }
    return "keys of " + bracketed(section) + ": " + joined(names, ", ");
}

Match before_any_section(const std::string& name) {
    Match match;
    std::vector<std::string> meant = keys_named(name);
    if (find_row(name) != nullptr) {
        meant = {name}; // a whole "section.key"
    }
    match.complaint = "key " + printable(name) + " comes before any section";
    if (meant.empty()) {
        match.complaint += " (" + known_around("") + ")";
        return match;
    }
    std::vector<std::string> lines;
    for (const std::string& key : meant) {
        const Row& row = *find_row(key);
        lines.push_back(bracketed(row.section()) + " and below it " + std::string(row.name()) +
                        " = ...");
    }
    match.complaint += " (write " + joined(lines, ", or ") + ")";
    match.meant = {meant.begin(), meant.end()};
    return match;
}

} // namespace

Match match_key(const std::string& section, const std::string& name) {
    if (section.empty()) {
        return before_any_section(name);
    }
    const std::string key = section + "." + name;
    if (const Row* row = find_row(key)) {
        return {row, ""};
    }
    Match match;
    match.complaint = "unknown key " + printable(key) + " (";
    std::vector<std::string> meant = keys_named(name);
    if (find_row(lower(key)) != nullptr) {
        meant = {lower(key)};
        match.complaint += "case matters: did you mean " + meant.front() + "?)";
    } else if (!meant.empty()) {
        match.complaint += "wrong section: did you mean " + joined(meant, " or ") + "?)";
    } else if (const std::string close = nearest(key, all_keys()); !close.empty()) {
        meant = {close};
        match.complaint += "did you mean " + close + "?)";
    } else if (meant = keys_sharing_a_word(name); !meant.empty()) {
        match.complaint += "did you mean " + joined(meant, " or ") + "?)";
    } else {
        match.complaint += known_around(section) + ")";
    }
    match.meant = {meant.begin(), meant.end()};
    return match;
}

std::string section_complaint(const std::string& section) {
    if (is_section(section)) {
        return "";
    }
    const std::string begin = "unknown section " + bracketed(printable(section)) + " (";
    if (is_section(lower(section))) {
        return begin + "case matters: did you mean " + bracketed(lower(section)) + "?)";
    }
    const std::string close = nearest(section, all_sections());
    return begin +
           (close.empty() ? "sections: " + joined(all_sections(), ", ")
                          : "did you mean " + bracketed(close) + "?") +
           ")";
}

} // namespace foregather::deck
