// SPDX-License-Identifier: Apache-2.0
// Which depths a run should have, by replaying its schedule at each that it may have: a pure
// function of times that all ranks agree on, so that all choose alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <foregather/schedule/replay.hpp>

namespace foregather::schedule {

// Largest depth that is tried: beyond it gathers are the bound, or memory is spent on nothing.
inline constexpr int most_chosen_depth = 8;

// The depths that a direction may have; one where it is fixed.
struct DepthRange {
    int least = 0, most = 0;
    bool open() const { return least < most; }
};

struct DepthCandidate {
    int forward = 0, backward = 0;
    double step = 0;           // s, predicted
    double exposed_gather = 0; // s of it, both directions
    double gather = 0;         // s of the gather stream; 0: all units stay in their slots
    double share() const { return step > 0 ? exposed_gather / step : 0; }
};

struct DepthChoice {
    DepthCandidate chosen;
    std::vector<DepthCandidate> candidates; // in ascending order of depth
    bool resident = false; // nothing is gathered at the chosen depth, though there are gathers
    std::string reason;    // in words
};

// Makes the plan of one steady step, as replay() takes it, with these depths in force.
using PlanMaker = std::function<Plan(int forward, int backward)>;

// The smallest depth at which less than 2 % of a step is predicted to be exposed to gathers, and
// which no other is predicted to beat by more than 2 %; where there is none, the smallest whose
// step is within 1 % of the shortest. Where both directions are open they have the same depth, as
// far as their ranges allow: the deeper one decides how many slots there are.
DepthChoice choose_prefetch_depths(const PlanMaker& plan, const PassTimes& times,
                                   const Contention& contention, const DepthRange& forward,
                                   const DepthRange& backward = {});

} // namespace foregather::schedule
