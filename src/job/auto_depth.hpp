// SPDX-License-Identifier: Apache-2.0
// What fsdp.forward_prefetch = auto and fsdp.backward_prefetch = auto become: times of a few passes
// measured before the run begins, and the depth that their replay says is enough.
#pragma once

#include <string>
#include <vector>

#include <foregather/io/table.hpp>
#include <foregather/schedule/depth_choice.hpp>

#include "alone.hpp"
#include "memory_plan.hpp"
#include "provenance.hpp"

namespace foregather::job {

// The same on every rank, but for the seconds that it took.
struct AutoDepths {
    schedule::DepthChoice choice;
    schedule::PassTimes alone; // agreed; empty: nothing was measured
    std::int64_t passes = 0;   // that were measured
    double seconds = 0;        // that it took on this rank
    bool measured() const { return !alone.compute.empty(); }
};

// Measures and chooses. Collective; blocks. Nothing may be in flight, and the home's weights be
// loaded; one slot is enough.
AutoDepths choose_by_measuring(const AloneMeter::Parts& parts, const schedule::PlanMaker& plan,
                               const schedule::DepthRange& forward,
                               const schedule::DepthRange& backward);
// Where there is nothing to be run: depth 0, with the reason.
AutoDepths choose_without_measuring(const std::string& reason);

// The depths that a key lets a direction have: one unless it is `auto`.
schedule::DepthRange range_of(const Depth& allowed);
// What an allowed depth of `auto` became.
Depth chosen_of(const Depth& allowed, int units, const AutoDepths& chosen);

// What keys became by now, for the deck that repeats the run.
Became became(const Depth& forward, const Depth& backward = {});

// /timing/alone: a row for each use of a pass. /timing/choice: a row for each candidate. None where
// nothing was measured.
std::vector<io::Table> choice_tables(const AutoDepths& chosen, const schedule::Plan& pass,
                                     const model::Chain& chain);

} // namespace foregather::job
