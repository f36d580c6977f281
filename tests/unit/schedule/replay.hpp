// SPDX-License-Identifier: Apache-2.0
// Chains of uses as models have them, and a replay of a schedule that watches its slots. What must
// hold is said in the tests.
#pragma once

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

} // namespace foregather::tests
