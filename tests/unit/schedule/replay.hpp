// SPDX-License-Identifier: Apache-2.0
// Chains of uses as models have them, and a replay of a schedule that watches its slots. What must
// hold is said in the tests.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <foregather/schedule/schedule.hpp>

namespace foregather::tests {

using Chain = std::vector<base::UnitId>;

// units once each.
inline Chain untied(int units) {
    Chain chain(static_cast<std::size_t>(units));
    std::iota(chain.begin(), chain.end(), 0);
    return chain;
}

// A tied head: the first `pieces` units again at the end, in descending order.
inline Chain tied(int units, int pieces) {
    Chain chain = untied(units);
    for (int piece = pieces - 1; piece >= 0; --piece) {
        chain.push_back(piece);
    }
    return chain;
}

inline std::string words(const Chain& chain, std::int64_t passes, int depth) {
    std::ostringstream text;
    text << "uses";
    for (const base::UnitId unit : chain) {
        text << " " << unit;
    }
    text << ", " << passes << " passes, depth " << depth;
    return text.str();
}

inline int distinct(const Chain& chain) {
    return static_cast<int>(std::set<base::UnitId>(chain.begin(), chain.end()).size());
}

inline std::vector<schedule::Step> steps_of(schedule::Schedule schedule) {
    std::vector<schedule::Step> steps;
    for (schedule::Step step; schedule.next(step);) {
        steps.push_back(step);
    }
    return steps;
}

inline std::int64_t gathers_in(const std::vector<schedule::Step>& steps) {
    std::int64_t n = 0;
    for (const schedule::Step& step : steps) {
        n += step.kind == schedule::Step::Kind::gather ? 1 : 0;
    }
    return n;
}

// The fewest gathers that any choice of slots can do with, by trying all. needs: what each use must
// find in a slot, below 32, or -1. A gather for use k is issued at use issued_at[k], when what uses
// issued_at[k] .. k - 1 need must stay.
inline std::int64_t fewest_gathers(const std::vector<int>& needs,
                                   const std::vector<std::int64_t>& issued_at, int slots) {
    const auto bit = [&](std::size_t use) {
        return needs[use] < 0 ? 0U : 1U << static_cast<unsigned>(needs[use]);
    };
    std::map<unsigned, std::int64_t> best = {{0U, 0}}; // set in slots -> gathers so far
    for (std::size_t k = 0; k < needs.size(); ++k) {
        unsigned pinned = 0;
        for (auto use = static_cast<std::size_t>(issued_at[k]); use < k; ++use) {
            pinned |= bit(use);
        }
        std::map<unsigned, std::int64_t> next;
        const auto offer = [&next](unsigned set, std::int64_t gathers) {
            const auto [place, added] = next.try_emplace(set, gathers);
            place->second = added ? gathers : std::min(place->second, gathers);
        };
        for (const auto& [set, gathers] : best) {
            if ((set & bit(k)) == bit(k)) {
                offer(set, gathers);
                continue;
            }
            if (__builtin_popcount(set) < slots) {
                offer(set | bit(k), gathers + 1);
            }
            for (unsigned victim = 1; victim != 0 && victim <= set; victim <<= 1U) {
                if ((set & victim) != 0 && (pinned & victim) == 0) {
                    offer((set & ~victim) | bit(k), gathers + 1);
                }
            }
        }
        best = std::move(next);
    }
    std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
    for (const auto& [set, gathers] : best) {
        fewest = std::min(fewest, gathers);
    }
    return fewest;
}

} // namespace foregather::tests
