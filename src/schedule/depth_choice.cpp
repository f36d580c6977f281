// SPDX-License-Identifier: Apache-2.0
// Tries depths from the smallest on, and says why it stops at one.
#include <foregather/schedule/depth_choice.hpp>

#include <algorithm>
#include <cstdio>

#include <foregather/base/error.hpp>

namespace foregather::schedule {
namespace {

constexpr double exposed_share = 0.02; // of a step, that is as good as none
constexpr double behind_any = 0.02;    // of a step, that another depth may be faster by
constexpr double behind_least = 0.01;  // the same, where gathers cannot be hidden

std::string percent(double share) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f %%", 100 * share);
    return text;
}

std::vector<DepthCandidate> replayed(const PlanMaker& plan, const PassTimes& times,
                                     const Contention& contention, const DepthRange& forward,
                                     const DepthRange& backward) {
    std::vector<DepthCandidate> candidates;
    for (int depth = 0; depth <= std::max(forward.most, backward.most); ++depth) {
        DepthCandidate c{std::clamp(depth, forward.least, forward.most),
                         std::clamp(depth, backward.least, backward.most)};
        if (!candidates.empty() && candidates.back().forward == c.forward &&
            candidates.back().backward == c.backward) {
            continue;
        }
        const Replayed r = replay(plan(c.forward, c.backward), times, contention);
        c.step = r.step;
        c.exposed_gather = r.directions[0].exposed + r.directions[1].exposed;
        c.gather = r.directions[0].gather + r.directions[1].gather;
        candidates.push_back(c);
    }
    return candidates;
}

// Why no depth was taken for hiding gathers: none does, or those that do make slower steps.
std::string why_not_hidden(const std::vector<DepthCandidate>& candidates) {
    const bool some = std::any_of(candidates.begin(), candidates.end(),
                                  [](const auto& c) { return c.share() < exposed_share; });
    return (some ? "depths below " + percent(exposed_share) + " have longer steps"
                 : "no depth allowed is below " + percent(exposed_share)) +
           "; the smallest whose step is within " + percent(behind_least) + " of the shortest";
}

DepthChoice chosen(DepthChoice choice, const PassTimes& times, const DepthCandidate& taken,
                   const std::string& reason) {
    choice.chosen = taken;
    choice.reason = reason;
    choice.resident = taken.gather == 0 && std::any_of(times.gather.begin(), times.gather.end(),
                                                       [](double s) { return s > 0; });
    if (choice.resident) {
        choice.reason +=
            "; all units stay in their slots: nothing is gathered after the first pass";
    }
    return choice;
}

} // namespace

DepthChoice choose_prefetch_depths(const PlanMaker& plan, const PassTimes& times,
                                   const Contention& contention, const DepthRange& forward,
                                   const DepthRange& backward) {
    for (const DepthRange& range : {forward, backward}) {
        if (range.least < 0 || range.most < range.least) {
            base::fail("choice of a depth: from " + std::to_string(range.least) + " to " +
                       std::to_string(range.most));
        }
    }
    DepthChoice choice;
    choice.candidates = replayed(plan, times, contention, forward, backward);
    double least = choice.candidates.front().step;
    for (const DepthCandidate& c : choice.candidates) {
        least = std::min(least, c.step);
    }
    for (const DepthCandidate& c : choice.candidates) {
        if (c.share() < exposed_share && c.step <= (1 + behind_any) * least) {
            return chosen(choice, times, c, "the smallest depth below " + percent(exposed_share));
        }
    }
    const DepthCandidate& fast = *std::find_if(
        choice.candidates.begin(), choice.candidates.end(),
        [least](const DepthCandidate& c) { return c.step <= (1 + behind_least) * least; });
    return chosen(choice, times, fast, why_not_hidden(choice.candidates));
}

} // namespace foregather::schedule
