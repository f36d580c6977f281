// SPDX-License-Identifier: Apache-2.0
// What is enqueued in which order, and what it waits for: as Prefetcher, GradientReducer and the
// optimizer do it.
#include <foregather/schedule/replay.hpp>

#include <algorithm>
#include <cmath>
#include <string>

#include <foregather/base/error.hpp>

#include "play.hpp"

namespace foregather::schedule {
namespace {

void check_times(const std::vector<double>& times, std::size_t needed, bool may_be_empty,
                 const char* what) {
    if (times.size() != needed && !(may_be_empty && times.empty())) {
        base::fail("replay: " + std::to_string(times.size()) + " times of " + what + " for " +
                   std::to_string(needed));
    }
    for (const double time : times) {
        if (!(time >= 0) || !std::isfinite(time)) {
            base::fail(std::string("replay: a time of ") + what + " is " + std::to_string(time) +
                       " s");
        }
    }
}

// Of the first `blocks` of a run, each one `plan`.
Plan chained(const Plan& plan, std::int64_t blocks) {
    Plan run = plan;
    run.passes = plan.passes * blocks;
    run.step_ends.clear();
    for (std::int64_t block = 0; block < blocks; ++block) {
        for (const std::int64_t end : plan.step_ends) {
            run.step_ends.push_back(block * plan.passes + end);
        }
    }
    return run;
}

} // namespace

Play::Play(const Plan& plan, const PassTimes& times, const Contention& contention,
           std::int64_t blocks)
    : plan_(plan), times_(times), schedule_(chained(plan, blocks)), fluid_(contention),
      uses_(schedule_.uses_per_pass()), slots_(static_cast<std::size_t>(schedule_.slots())),
      played_(static_cast<std::size_t>(schedule_.uses())) {
    for (const Use& use : plan.pass) {
        if (std::find(units_.begin(), units_.end(), use.unit) == units_.end()) {
            units_.push_back(use.unit);
        }
    }
    const auto n = static_cast<std::size_t>(*std::max_element(units_.begin(), units_.end())) + 1;
    steps_of_.assign(n, 0);
    updated_.assign(n, -1);
    check_times(times.compute, plan.pass.size(), false, "the computes of a pass");
    check_times(times.gather, n, false, "the gathers of units");
    check_times(times.reduce, n, true, "the reductions of units");
    check_times(times.replica, n, true, "the sums over replicas of units");
    check_times(times.optimizer, n, true, "the updates of units");
    check_times({times.between, contention.compute, contention.collective}, 3, false,
                "what is between, or of contention");
    enqueue_all();
    fluid_.run();
    for (Played& use : played_) {
        complete(use);
    }
}

// As the executor takes the steps: gathers that need what the optimizer is to write are held back,
// and all that come behind them, until it has been enqueued for their unit.
void Play::enqueue_all() {
    for (Step step; schedule_.next(step);) {
        if (step.kind == Step::Kind::compute) {
            compute(step);
        } else if (held_.empty() &&
                   steps_of_[static_cast<std::size_t>(step.unit)] >= step.optimizer_step) {
            gather(step);
        } else {
            held_.push_back(step);
        }
    }
}

void Play::gather(const Step& step) {
    Slot& slot = slots_[static_cast<std::size_t>(step.slot)];
    Played& use = played(step.use);
    use.slot_used = slot.last_use >= 0 ? played(slot.last_use).computed : -1;
    use.updated = step.begins_step ? updated_[static_cast<std::size_t>(step.unit)] : -1;
    use.decided = step.begins_step ? decided_ : -1;
    use.gather =
        fluid_.enqueue(On::gather, time_of(times_.gather, step.unit), {use.slot_used, use.updated});
    use.record.gathered = true;
    use.record.gather_sequence = sequence_++;
    slot = {step.unit, step.use, -1};
}

void Play::compute(const Step& step) {
    Played& use = played(step.use);
    UseRecord& r = use.record;
    r.use = step.use;
    r.pass = step.use / uses_;
    r.unit = step.unit;
    r.direction = step.direction;
    r.slot = step.slot;
    r.must_ahead = schedule_.issued_ahead(step.use);
    r.may_ahead = schedule_.reach(step.use) - step.use;
    use.free = free_;
    free_ = -1;
    Id gathered = -1;
    if (step.slot >= 0) {
        Slot& slot = slots_[static_cast<std::size_t>(step.slot)];
        if (slot.unit != step.unit) {
            base::fail("replay: slot " + std::to_string(step.slot) + " does not hold unit " +
                       std::to_string(step.unit) + " for use " + std::to_string(step.use));
        }
        const Played& bringer = played(slot.gathered_for);
        gathered = bringer.gather;
        r.gather_sequence = bringer.record.gather_sequence;
        slot.last_use = step.use;
    }
    r.compute_sequence = sequence_++;
    // The wait for a gradient slot lies within the compute, as the executor's clock has it.
    use.acquired = fluid_.enqueue(On::compute, 0, {gathered, -1});
    const bool backward = step.direction == Direction::backward;
    if (backward) {
        use.freed = freed_[static_cast<std::size_t>(schedule_.gradient_of(step.use).slot)];
    }
    use.computed = fluid_.enqueue(
        On::compute, times_.compute[static_cast<std::size_t>(step.use % uses_)], {use.freed, -1});
    if (backward) {
        reduce(step);
    }
    end_pass(step.use);
}

void Play::reduce(const Step& step) {
    Reduction r{step.use / uses_, schedule_.gradient_of(step.use), step.unit};
    r.scatter = fluid_.enqueue(On::reduce, time_of(times_.reduce, step.unit),
                               {played(step.use).computed, -1});
    freed_[static_cast<std::size_t>(r.gradient.slot)] = r.scatter;
    if (r.gradient.completes) {
        r.replica = fluid_.enqueue(On::reduce, time_of(times_.replica, step.unit));
    }
    reductions_.push_back(r);
}

void Play::end_pass(std::int64_t use) {
    if ((use + 1) % uses_ != 0) {
        return;
    }
    if (schedule_.ends_step(use)) {
        end_step(use);
    } else if (plan_.step_ends.empty()) {
        fluid_.enqueue_idle(On::compute, times_.between);
    }
    if ((use + 1) % (uses_ * plan_.passes) == 0) {
        block_ends_.push_back(fluid_.enqueue(On::compute, 0));
    }
}

void Play::end_step(std::int64_t use) {
    const std::int64_t steps = schedule_.optimizer_step_of(use) + 1;
    StepEnd end;
    end.pass = use / uses_;
    end.last_compute = played(use).computed;
    end.drained =
        fluid_.enqueue(On::compute, 0, {reductions_.empty() ? -1 : reductions_.back().end(), -1});
    end.last_unit = reductions_.empty() ? 0 : reductions_.back().unit;
    decided_ = fluid_.enqueue_idle(On::compute, times_.between);
    for (const base::UnitId unit : units_) {
        const auto u = static_cast<std::size_t>(unit);
        end.end = updated_[u] = fluid_.enqueue(On::compute, time_of(times_.optimizer, unit));
        end.first_update = end.first_update < 0 ? end.end : end.first_update;
        steps_of_[u] = steps;
        while (!held_.empty() && steps_of_[static_cast<std::size_t>(held_.front().unit)] >=
                                     held_.front().optimizer_step) {
            gather(held_.front());
            held_.pop_front();
        }
    }
    free_ = end.end;
    step_ends_.push_back(end);
}

// An optimizer step ends with nothing under way but its successor's gathers, so the second step is
// like all that follow; the third is there for what the second gathers for it. Passes that nothing
// separates take a while to settle.
Replayed replay(const Plan& plan, const PassTimes& times, const Contention& contention,
                bool with_spans) {
    if (plan.pass.empty() || plan.passes < 1) {
        base::fail("replay: a plan of " + std::to_string(plan.passes) + " passes of " +
                   std::to_string(plan.pass.size()) + " uses");
    }
    if (!plan.step_ends.empty()) {
        return Play(plan, times, contention, 3).of(1, with_spans);
    }
    constexpr std::int64_t most_blocks = 64;
    for (std::int64_t blocks = 4;; blocks *= 2) {
        Play play(plan, times, contention, blocks);
        const double last = play.length(blocks - 2);
        if (blocks == most_blocks || std::abs(last - play.length(blocks - 3)) <= 1e-9 * last) {
            return play.of(blocks - 2, with_spans);
        }
    }
}

} // namespace foregather::schedule
