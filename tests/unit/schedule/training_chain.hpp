// SPDX-License-Identifier: Apache-2.0
// Training runs as the tests of their schedules name them, with what each use needs and may gather
// for, worked out from the text of the law and not by the schedule's code.
#pragma once

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <foregather/schedule/schedule.hpp>

#include "replay.hpp"

namespace foregather::tests {

// A model of `units` units: one embedding piece or more, then layers; with head pieces at the end
// that are the embedding's if tied.
struct TrainingRun {
    int units = 4;
    int pieces = 1;
    bool tied = false;
    std::int64_t passes = 1;
    std::int64_t accumulate = 1;
    int forward_depth = 1;
    int backward_depth = 1;
    bool reshard = true;

    Chain forward() const { return tied ? tests::tied(units, pieces) : untied(units); }

    // Of `accumulate` passes each; the last of what is left.
    std::vector<std::int64_t> step_ends() const {
        std::vector<std::int64_t> ends;
        for (std::int64_t pass = 1; pass <= passes; ++pass) {
            if (pass % accumulate == 0 || pass == passes) {
                ends.push_back(pass);
            }
        }
        return ends;
    }
    schedule::Plan plan() const {
        return {schedule::training_pass(forward(), pieces),
                passes,
                forward_depth,
                backward_depth,
                step_ends(),
                reshard};
    }

    // Units that need weights at all: every one in its forward use.
    int clamped(int depth) const { return std::min(depth, units - 1); }
    int slots() const {
        return reshard ? std::max(clamped(forward_depth), clamped(backward_depth)) + 1 : units;
    }
    std::int64_t per_pass() const { return 2 * (units + (tied ? pieces : 0)); }
    std::int64_t uses() const { return passes * per_pass(); }
    bool is_backward(std::int64_t use) const { return use % per_pass() >= per_pass() / 2; }
    base::UnitId unit_at(std::int64_t use) const {
        const std::int64_t at = use % per_pass();
        const std::int64_t mirrored = std::min(at, per_pass() - 1 - at);
        return static_cast<int>(mirrored < units ? mirrored : units + pieces - 1 - mirrored);
    }
    bool needs_weights(std::int64_t use) const {
        return use % per_pass() < per_pass() - pieces; // the embedding's backward comes last
    }
    std::int64_t optimizer_step(std::int64_t use) const { return use / per_pass() / accumulate; }
    int depth_at(std::int64_t use) const {
        return clamped(is_backward(use) ? backward_depth : forward_depth);
    }
    std::int64_t last_of_step(std::int64_t use) const {
        return std::min((optimizer_step(use) + 1) * accumulate * per_pass(), uses()) - 1;
    }
    // The last use that this one gathers for; without resharding never one of the next step.
    std::int64_t reach_of(std::int64_t use) const {
        std::int64_t last = std::min(use + depth_at(use), uses() - 1);
        while (!reshard && optimizer_step(last) != optimizer_step(use)) {
            --last;
        }
        return last;
    }

    std::string words() const {
        std::ostringstream text;
        text << units << " units, " << pieces << (tied ? " tied" : "") << " pieces, " << passes
             << " passes, " << accumulate << " a step, depths " << forward_depth << " and "
             << backward_depth << (reshard ? "" : ", not resharded");
        return text.str();
    }
};

// Every run of the grid with at most so many units.
inline void for_each_training_run(int most_units,
                                  const std::function<void(const TrainingRun&)>& f) {
    TrainingRun run;
    for (run.units = 1; run.units <= most_units; ++run.units) {
        for (const bool tied : {false, true}) {
            run.tied = tied;
            for (run.pieces = 1; run.pieces <= std::min(run.units, 3); ++run.pieces) {
                for (int k = 0; k < 4 * 4 * 4 * 3 * 2; ++k) {
                    run.forward_depth = k % 4;
                    run.backward_depth = k / 4 % 4;
                    run.passes = 1 + k / 16 % 4;
                    run.accumulate = 1 + k / 64 % 3;
                    run.reshard = k / 192 == 0;
                    f(run);
                }
            }
        }
    }
}

} // namespace foregather::tests
