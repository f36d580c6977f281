// SPDX-License-Identifier: Apache-2.0
// Which unit goes to which slot, and when.
#include <foregather/schedule/schedule.hpp>

#include <algorithm>
#include <limits>

#include <foregather/base/error.hpp>

namespace foregather::schedule {

Schedule::Schedule(std::vector<base::UnitId> uses, std::int64_t passes, int depth)
    : uses_(std::move(uses)), total_(static_cast<std::int64_t>(uses_.size()) * passes) {
    int units = 0;
    for (const base::UnitId unit : uses_) {
        units = std::max(units, unit + 1);
    }
    seen_.resize(static_cast<std::size_t>(units));
    for (std::size_t i = 0; i < uses_.size(); ++i) {
        seen_[static_cast<std::size_t>(uses_[i])].push_back(static_cast<std::int64_t>(i));
    }
    const auto distinct =
        std::count_if(seen_.begin(), seen_.end(), [](const auto& s) { return !s.empty(); });
    depth_ = std::clamp(depth, 0, std::max(static_cast<int>(distinct) - 1, 0));
    slots_.assign(static_cast<std::size_t>(depth_) + 1, -1);
}

bool Schedule::next(Step& step) {
    if (use_ >= total_) {
        return false;
    }
    for (; ahead_ <= std::min(use_ + depth_, total_ - 1); ++ahead_) {
        const base::UnitId unit = unit_of(ahead_);
        if (find(unit) < 0) {
            const int slot = choose(use_, ahead_);
            slots_[static_cast<std::size_t>(slot)] = unit;
            step = {Step::Kind::gather, ahead_, unit, slot};
            ++ahead_;
            return true;
        }
    }
    step = {Step::Kind::compute, use_, unit_of(use_), find(unit_of(use_))};
    ++use_;
    ahead_ = use_;
    return true;
}

int Schedule::find(base::UnitId unit) const {
    const auto place = std::find(slots_.begin(), slots_.end(), unit);
    return place == slots_.end() ? -1 : static_cast<int>(place - slots_.begin());
}

int Schedule::choose(std::int64_t first, std::int64_t use) const {
    int best = -1;
    std::int64_t furthest = -1;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
        if (slots_[s] < 0) {
            return static_cast<int>(s);
        }
        const std::int64_t next = next_use(slots_[s], first);
        if (next > use && next > furthest) {
            furthest = next;
            best = static_cast<int>(s);
        }
    }
    if (best < 0) { // cannot be: first .. use - 1 hold at most depth of the depth + 1 slots
        base::fail("schedule: no slot is free for use " + std::to_string(use));
    }
    return best;
}

// The first use of `unit` at or after `after`, or beyond everything when the run has none.
std::int64_t Schedule::next_use(base::UnitId unit, std::int64_t after) const {
    const auto& seen = seen_[static_cast<std::size_t>(unit)];
    const std::int64_t pass = after / uses_per_pass();
    const auto place = std::lower_bound(seen.begin(), seen.end(), after % uses_per_pass());
    const std::int64_t use = place != seen.end() ? pass * uses_per_pass() + *place
                                                 : (pass + 1) * uses_per_pass() + seen.front();
    return use < total_ ? use : std::numeric_limits<std::int64_t>::max();
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
                std::to_string(step.use) + "  " + unit_names[static_cast<std::size_t>(step.unit)] +
                (gather ? " -> slot " : " in slot ") + std::to_string(step.slot) + "\n";
    }
    return text;
}

} // namespace foregather::schedule
