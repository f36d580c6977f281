// SPDX-License-Identifier: Apache-2.0
// The known name that a user most likely meant by an unknown one.
// It decides what is close enough to be worth a hint, not what the hint says.
#include "nearest.hpp"

#include <algorithm>
#include <utility>

namespace foregather::deck {

std::size_t edit_distance(std::string_view a, std::string_view b) {
    // Three rows of the usual table: two back (for swaps), one back, current.
    std::vector<std::size_t> before(b.size() + 1);
    std::vector<std::size_t> above(b.size() + 1);
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) {
        above[j] = j;
    }
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = std::min(row[j], before[j - 2] + 1);
            }
        }
        std::swap(before, above);
        std::swap(above, row);
    }
    return above[b.size()];
}

std::string nearest(std::string_view given, const std::vector<std::string>& known) {
    const auto begun = [&](const std::string& name) { return name.starts_with(given); };
    if (!given.empty() && std::count_if(known.begin(), known.end(), begun) == 1) {
        return *std::find_if(known.begin(), known.end(), begun);
    }
    std::string best;
    std::size_t best_distance = 0;
    for (const std::string& name : known) {
        const std::size_t limit = std::max<std::size_t>(1, name.size() / 3);
        if (given.size() > name.size() + limit || name.size() > given.size() + limit) {
            continue; // as many edits at least; spares the table for a name of a megabyte
        }
        const std::size_t distance = edit_distance(given, name);
        if (distance <= limit && (best.empty() || distance < best_distance)) {
            best = name;
            best_distance = distance;
        }
    }
    return best;
}

} // namespace foregather::deck
