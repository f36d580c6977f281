// SPDX-License-Identifier: Apache-2.0
// A run of a Schedule as work in a Fluid: what the executor would enqueue, and what each piece of
// it waits for. It decides no order: that is the schedule's.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include <foregather/schedule/replay.hpp>
#include <foregather/schedule/witness.hpp>

#include "fluid.hpp"

namespace foregather::schedule {

class Play {
public:
    Play(const Plan& plan, const PassTimes& times, const Contention& contention,
         std::int64_t blocks);

    // From the end of block - 1 to that of `block`.
    double length(std::int64_t block) const;
    // Of that block, the seconds of one step.
    Replayed of(std::int64_t block, bool with_spans) const;

private:
    using On = Fluid::On;
    using Id = Fluid::Id;
    struct Slot {
        base::UnitId unit = -1;
        std::int64_t gathered_for = -1; // use
        std::int64_t last_use = -1;
    };
    struct Played { // a use
        UseRecord record;
        Id gather = -1, slot_used = -1, updated = -1, decided = -1; // of its own gather
        Id acquired = -1, computed = -1;
        Id free = -1;  // compute had come to it, behind an optimizer
        Id freed = -1; // of the gradient slot that it had to wait for
    };
    struct Reduction {
        std::int64_t pass = 0;
        Gradient gradient;
        base::UnitId unit = 0;
        Id scatter = -1, replica = -1;
        Id end() const { return replica >= 0 ? replica : scatter; }
    };
    struct StepEnd {
        std::int64_t pass = 0;
        Id last_compute = -1, drained = -1, first_update = -1, end = -1;
        base::UnitId last_unit = 0;
    };

    void enqueue_all();
    void gather(const Step& step);
    void compute(const Step& step);
    void reduce(const Step& step);
    void end_pass(std::int64_t use);
    void end_step(std::int64_t use);
    Played& played(std::int64_t use) { return played_[static_cast<std::size_t>(use)]; }
    double time_of(const std::vector<double>& times, base::UnitId unit) const {
        return times.empty() ? 0 : times[static_cast<std::size_t>(unit)];
    }
    void complete(Played& use) const;
    void add_reductions(std::int64_t block, Replayed& sums) const;
    std::vector<Span> spans() const;
    void add_use_spans(std::int64_t use, std::vector<Span>& spans) const;
    std::int64_t block_of(std::int64_t pass) const { return pass / plan_.passes; }

    const Plan& plan_; // of a block
    const PassTimes& times_;
    Schedule schedule_;
    Fluid fluid_;
    std::int64_t uses_;                  // of a pass
    std::vector<base::UnitId> units_;    // in the order of first use
    std::vector<std::int64_t> steps_of_; // by unit: optimizer steps that have updated it
    std::vector<Id> updated_;            // by unit: its latest update
    std::vector<Slot> slots_;
    std::deque<Step> held_;
    std::vector<Played> played_;
    std::vector<Reduction> reductions_;
    std::vector<StepEnd> step_ends_;
    std::vector<Id> block_ends_;
    std::array<Id, 2> freed_ = {-1, -1}; // of the gradient slots
    Id decided_ = -1, free_ = -1;
    std::int64_t sequence_ = 1;
};

} // namespace foregather::schedule
