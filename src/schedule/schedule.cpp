// SPDX-License-Identifier: Apache-2.0
// Which unit goes to which slot, and when; where gradients go. It issues nothing itself: an
// executor plays the steps.
#include <foregather/schedule/schedule.hpp>

#include <algorithm>
#include <functional>
#include <limits>

#include <foregather/base/error.hpp>

namespace foregather::schedule {
namespace {

void check_step_ends(const Plan& plan) {
    const auto& ends = plan.step_ends;
    const bool ascending =
        std::adjacent_find(ends.begin(), ends.end(), std::greater_equal<>()) == ends.end();
    if (!ends.empty() && (!ascending || ends.front() <= 0 || ends.back() != plan.passes)) {
        base::fail("schedule: ends of optimizer steps must ascend from 1 pass or more to " +
                   std::to_string(plan.passes));
    }
}

} // namespace

Plan forward_plan(const std::vector<base::UnitId>& uses, std::int64_t passes, int depth) {
    Plan plan;
    for (const base::UnitId unit : uses) {
        plan.pass.push_back({unit, true, Direction::forward});
    }
    plan.passes = passes;
    plan.forward_depth = depth;
    return plan;
}

std::vector<Use> training_pass(const std::vector<base::UnitId>& forward, std::int64_t lookups) {
    std::vector<Use> pass;
    for (const base::UnitId unit : forward) {
        pass.push_back({unit, true, Direction::forward});
    }
    for (auto i = static_cast<std::int64_t>(forward.size()) - 1; i >= 0; --i) {
        pass.push_back({forward[static_cast<std::size_t>(i)], i >= lookups, Direction::backward});
    }
    return pass;
}

Schedule::Schedule(const std::vector<base::UnitId>& uses, std::int64_t passes, int depth)
    : Schedule(forward_plan(uses, passes, depth)) {}

Schedule::Schedule(Plan plan)
    : plan_(std::move(plan)), total_(uses_per_pass() * std::max<std::int64_t>(plan_.passes, 0)),
      gradients_(1, 0) {
    check_step_ends(plan_);
    std::size_t units = 0;
    std::array<bool, 2> used{};
    for (const Use& use : plan_.pass) {
        units = std::max(units, static_cast<std::size_t>(use.unit) + 1);
        used[static_cast<std::size_t>(use.direction)] = true;
        gradients_.push_back(gradients_.back() + (use.direction == Direction::backward ? 1 : 0));
    }
    seen_.resize(units);
    gathered_in_.assign(units, 0);
    own_slot_.assign(units, -1);
    int distinct = 0;
    for (std::size_t i = 0; i < plan_.pass.size(); ++i) {
        const Use& use = plan_.pass[i];
        if (!use.needs_weights) {
            continue;
        }
        const auto unit = static_cast<std::size_t>(use.unit);
        if (seen_[unit].empty()) {
            own_slot_[unit] = distinct++;
        }
        seen_[unit].push_back(static_cast<std::int64_t>(i));
    }
    const int most = std::max(distinct - 1, 0);
    depths_ = {used[0] ? std::clamp(plan_.forward_depth, 0, most) : 0,
               used[1] ? std::clamp(plan_.backward_depth, 0, most) : 0};
    const int slots =
        plan_.reshard_after_forward ? std::max(depths_[0], depths_[1]) + 1 : std::max(distinct, 1);
    slots_.resize(static_cast<std::size_t>(slots));
}

std::int64_t Schedule::optimizer_step_of(std::int64_t use) const {
    const auto& ends = plan_.step_ends;
    return std::upper_bound(ends.begin(), ends.end(), use / uses_per_pass()) - ends.begin();
}

std::int64_t Schedule::end_of_step(std::int64_t optimizer_step) const {
    return plan_.step_ends.empty()
               ? total_
               : plan_.step_ends[static_cast<std::size_t>(optimizer_step)] * uses_per_pass();
}

bool Schedule::ends_step(std::int64_t use) const {
    return !plan_.step_ends.empty() && use + 1 == end_of_step(optimizer_step_of(use));
}

// The last use that this one gathers for.
std::int64_t Schedule::own_reach(std::int64_t number) const {
    const std::int64_t end =
        plan_.reshard_after_forward ? total_ : end_of_step(optimizer_step_of(number));
    return std::min(number + depth(use(number).direction), end - 1);
}

std::int64_t Schedule::issued_ahead(std::int64_t use) const {
    return std::min(own_reach(use), end_of_step(optimizer_step_of(use)) - 1) - use;
}

std::int64_t Schedule::reach(std::int64_t use) const {
    std::int64_t furthest = own_reach(use);
    for (std::int64_t before = std::max<std::int64_t>(use - slots(), 0); before < use; ++before) {
        furthest = std::max(furthest, own_reach(before));
    }
    return std::min(furthest, end_of_step(optimizer_step_of(use)) - 1);
}

Gradient Schedule::gradient_of(std::int64_t number) const {
    if (use(number).direction == Direction::forward) {
        return {};
    }
    const std::int64_t pass = number / uses_per_pass();
    const std::int64_t in_pass = number % uses_per_pass();
    const auto same = [&](const Use& other) {
        return other.direction == Direction::backward && other.unit == unit_of(number);
    };
    const auto here = plan_.pass.begin() + static_cast<std::ptrdiff_t>(in_pass);
    const bool first = std::none_of(plan_.pass.begin(), here, same);
    const bool last = std::none_of(here + 1, plan_.pass.end(), same);
    const bool first_pass =
        pass == 0 || optimizer_step_of(number - uses_per_pass()) != optimizer_step_of(number);
    const bool last_pass = pass == (end_of_step(optimizer_step_of(number)) - 1) / uses_per_pass();
    const std::int64_t turn =
        pass * gradients_.back() + gradients_[static_cast<std::size_t>(in_pass)];
    return {static_cast<int>(turn % 2), first && first_pass, last && last_pass};
}

bool Schedule::next(Step& step) {
    if (use_ >= total_) {
        return false;
    }
    for (const std::int64_t last = own_reach(use_); ahead_ <= last; ++ahead_) {
        if (!use(ahead_).needs_weights || find(ahead_) >= 0) {
            continue;
        }
        const int slot = choose(use_, ahead_);
        step = step_for(Step::Kind::gather, ahead_, slot);
        slots_[static_cast<std::size_t>(slot)] = {step.unit, step.optimizer_step};
        gathered_in_[static_cast<std::size_t>(step.unit)] = step.optimizer_step;
        ++ahead_;
        return true;
    }
    step = step_for(Step::Kind::compute, use_, use(use_).needs_weights ? find(use_) : -1);
    ++use_;
    ahead_ = use_;
    return true;
}

Step Schedule::step_for(Step::Kind kind, std::int64_t number, int slot) const {
    const Use& served = use(number);
    const std::int64_t optimizer_step = optimizer_step_of(number);
    const bool first = kind == Step::Kind::gather
                           ? gathered_in_[static_cast<std::size_t>(served.unit)] != optimizer_step
                           : number > 0 && optimizer_step_of(number - 1) != optimizer_step;
    return {kind, number, served.unit, slot, served.direction, optimizer_step, first};
}

int Schedule::find(std::int64_t number) const {
    const auto place = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
        return slot.unit == unit_of(number) && slot.optimizer_step == optimizer_step_of(number);
    });
    return place == slots_.end() ? -1 : static_cast<int>(place - slots_.begin());
}

int Schedule::choose(std::int64_t first, std::int64_t use) const {
    if (!plan_.reshard_after_forward) {
        return own_slot_[static_cast<std::size_t>(unit_of(use))];
    }
    int best = -1;
    std::int64_t furthest = -1;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
        if (slots_[s].unit < 0) {
            return static_cast<int>(s);
        }
        const std::int64_t next = next_use(slots_[s], first);
        if (next > use && next > furthest) {
            furthest = next;
            best = static_cast<int>(s);
        }
    }
    if (best < 0) { // cannot be: first .. use - 1 hold fewer units than there are slots
        base::fail("schedule: no slot is free for use " + std::to_string(use));
    }
    return best;
}

// The first use at or after `after` that can take its weights from this slot, or beyond everything
// when there is none: after the optimizer step they are out of date. (A slot filled for the next
// step may be said to be used earlier than it is; it was filled for a use before the one that
// chooses now, so it stays in any case.)
std::int64_t Schedule::next_use(const Slot& slot, std::int64_t after) const {
    const auto& seen = seen_[static_cast<std::size_t>(slot.unit)];
    const std::int64_t pass = after / uses_per_pass();
    const auto place = std::lower_bound(seen.begin(), seen.end(), after % uses_per_pass());
    const std::int64_t use = place != seen.end() ? pass * uses_per_pass() + *place
                                                 : (pass + 1) * uses_per_pass() + seen.front();
    return use < end_of_step(slot.optimizer_step) ? use : std::numeric_limits<std::int64_t>::max();
}

std::string describe(Schedule schedule, const std::vector<std::string>& unit_names, int limit) {
    std::string text;
    Step step;
    for (int line = 0; schedule.next(step); ++line) {
        if (line == limit) {
            return text + "  ...\n";
        }
        const bool gather = step.kind == Step::Kind::gather;
        text += std::string(gather ? "  gather  use " : "  compute use ") +
                std::to_string(step.use) + "  " + unit_names[static_cast<std::size_t>(step.unit)];
        if (!gather && step.direction == Direction::backward) {
            text += " backward";
        }
        if (step.slot >= 0) {
            text += (gather ? " -> slot " : " in slot ") + std::to_string(step.slot);
        }
        const Gradient gradient = gather ? Gradient{} : schedule.gradient_of(step.use);
        if (gradient.slot >= 0) {
            text += ", gradient slot " + std::to_string(gradient.slot) +
                    (gradient.completes ? ", complete" : "");
        }
        if (step.begins_step) {
            text += gather ? ", once updated"
                           : ", begins step " + std::to_string(step.optimizer_step + 1);
        }
        text += "\n";
    }
    return text;
}

} // namespace foregather::schedule
