// SPDX-License-Identifier: Apache-2.0
// The order of gathers and computes as data: a pure function of the chain, the depth and the number
// of passes, the same on every rank. It knows no maths, no memory and no time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/base/types.hpp>

namespace foregather::schedule {

struct Step {
    enum class Kind { gather, compute };
    Kind kind = Kind::compute;
    std::int64_t use = 0; // number of the use in the run, over all passes, that this step serves
    base::UnitId unit = 0;
    int slot = 0;

    friend bool operator==(const Step&, const Step&) = default;
};

// Yields the steps of a run lazily. For use i: the gathers still missing for uses i .. i+depth, in
// that order, then compute i. A unit that is in a slot, or on its way to one, is taken there. A
// gather goes to the slot whose unit is used furthest ahead (a free one first), never to one used
// in between: with depth + 1 slots there always is one (Belady's rule, "A study of replacement
// algorithms", 1966). The chain goes on across passes: the last uses of a pass gather for the first
// of the next.
class Schedule {
public:
    // uses: the units of one pass in the order of use; the pass is repeated `passes` times. A depth
    // above distinct units - 1 is clamped: more can never be in flight.
    Schedule(std::vector<base::UnitId> uses, std::int64_t passes, int depth);

    // The next step; false when the run is over.
    bool next(Step& step);

    int depth() const { return depth_; }
    int slots() const { return depth_ + 1; }
    std::int64_t uses_per_pass() const { return static_cast<std::int64_t>(uses_.size()); }
    std::int64_t uses() const { return total_; }
    base::UnitId unit_of(std::int64_t use) const {
        return uses_[static_cast<std::size_t>(use % uses_per_pass())];
    }

private:
    int find(base::UnitId unit) const; // the slot that holds it, or -1
    int choose(std::int64_t first, std::int64_t use) const;
    std::int64_t next_use(base::UnitId unit, std::int64_t after) const;

    std::vector<base::UnitId> uses_;
    std::int64_t total_ = 0;
    int depth_ = 0;
    std::vector<base::UnitId> slots_;             // unit in each slot, -1 = free
    std::vector<std::vector<std::int64_t>> seen_; // positions in a pass of each unit, ascending
    std::int64_t use_ = 0;                        // next to compute
    std::int64_t ahead_ = 0;                      // next to look after, in use_ .. use_ + depth_
};

// Steps in words, one line each, for `--check`: "gather  use 3 layer.2 -> slot 1". At most `limit`
// lines.
std::string describe(Schedule schedule, const std::vector<std::string>& unit_names, int limit);

} // namespace foregather::schedule
