// SPDX-License-Identifier: Apache-2.0
// Values in plain form: what means the same is the same.
#include "identity.hpp"

#include <algorithm>

#include "version.hpp"

namespace foregather::job {
namespace {

// An empty value would not be compared.
std::string counted(const std::string& text) { return text.empty() ? "none" : text; }

} // namespace

void add_keys(std::vector<io::IdentityRow>& rows, const deck::Deck& deck,
              const std::vector<std::string>& except) {
    for (const deck::KeyInfo& key : deck::known_keys()) {
        if (key.mark != deck::Mark::free && key.serves(deck.sections().job.name) &&
            std::find(except.begin(), except.end(), key.key) == except.end()) {
            rows.push_back({key.key, counted(deck.plain(key.key)), key.mark == deck::Mark::told});
        }
    }
}

void add_versions(std::vector<io::IdentityRow>& rows) {
    for (const Version& version : versions()) {
        rows.push_back({"version of " + version.name, counted(version.value), true});
    }
}

std::vector<std::string> differences(const std::vector<io::IdentityRow>& stored,
                                     const std::vector<io::IdentityRow>& now, bool told) {
    std::vector<std::string> lines;
    for (const io::IdentityRow& row : now) {
        const auto same = std::find_if(stored.begin(), stored.end(),
                                       [&](const auto& other) { return other.name == row.name; });
        const std::string before = same == stored.end() ? "not recorded" : same->value;
        if (row.told == told && !row.value.empty() && before != row.value) {
            lines.push_back(row.name + " was " + before + ", is " + row.value);
        }
    }
    return lines;
}

} // namespace foregather::job
