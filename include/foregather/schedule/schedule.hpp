// SPDX-License-Identifier: Apache-2.0
// The order of gathers and computes as data: a pure function of the chain, the depths and the
// number of passes, the same on every rank. It knows no maths, no memory and no time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <foregather/base/types.hpp>

namespace foregather::schedule {

enum class Direction { forward, backward };

// One visit of compute to a unit.
struct Use {
    base::UnitId unit = 0;
    bool needs_weights = true; // false: takes no slot and is never gathered for
    Direction direction = Direction::forward;

    friend bool operator==(const Use&, const Use&) = default;
};

// The uses of one training pass: the forward ones, then the same backward in reverse order. The
// backward of the first `lookups` forward uses, the embedding's pieces, needs no weights.
std::vector<Use> training_pass(const std::vector<base::UnitId>& forward, std::int64_t lookups);

// What a Schedule is made of.
struct Plan {
    std::vector<Use> pass;   // uses in order; repeated `passes` times
    std::int64_t passes = 0; // of the run
    int forward_depth = 1;   // uses ahead of a forward use that are gathered before its compute
    int backward_depth = 1;  // the same of a backward use
    // The optimizer changes all weights after so many passes, counted from the first: ascending,
    // the last is `passes`. Empty: never.
    std::vector<std::int64_t> step_ends;
    // false: every unit has a slot of its own, gathered once per optimizer step and kept for it.
    bool reshard_after_forward = true;
};

// Forward uses of these units, no optimizer.
Plan forward_plan(const std::vector<base::UnitId>& uses, std::int64_t passes, int depth);

struct Step {
    enum class Kind { gather, compute };
    Kind kind = Kind::compute;
    std::int64_t use = 0; // number of the use in the run, over all passes, that this step serves
    base::UnitId unit = 0;
    int slot = 0;                             // -1: a compute that needs no weights
    Direction direction = Direction::forward; // of the use
    std::int64_t optimizer_step = 0;          // that the use belongs to
    // In optimizer steps after the first: the first gather of each unit, which must wait until the
    // optimizer before has updated that unit, and the first compute.
    bool begins_step = false;

    friend bool operator==(const Step&, const Step&) = default;
};

// Where the gradient of a use goes: the whole unit's, into one of two gradient slots in turn, then
// reduced into the accumulator of the shard. The turns go on across passes.
struct Gradient {
    int slot = -1;          // 0 or 1; -1: the use is a forward one
    bool begins = false;    // the unit's first in the optimizer step: nothing is there to add to
    bool completes = false; // the unit's last in the optimizer step, over its uses and passes

    friend bool operator==(const Gradient&, const Gradient&) = default;
};

// Yields the steps of a run lazily. For use i: the gathers still missing for those of uses i ..
// i+depth that need weights, in that order, then compute i; depth is that of the direction of use
// i. A unit that is in a slot, or on its way to one, is taken there. A gather goes to the slot
// whose unit is used furthest ahead (a free one first), never to one used in between: with as many
// slots as the larger depth + 1 there always is one (Belady's rule, "A study of replacement
// algorithms", 1966). The chain goes on across passes and optimizer steps: the last uses of a pass
// gather for the first of the next. Weights of the optimizer step before are of no use to the next:
// a unit may be in two slots for a while, the older being the first to go.
//
// Gathers for the next optimizer step are yielded as early as any, but whoever plays the steps must
// hold back those that begin it until the optimizer has updated their unit: so no use of a step can
// have been gathered for when a use of the step before is computed.
//
// Where a unit has a slot of its own that must be kept for the optimizer step, uses gather for no
// use of the next step: its slot may still be read.
class Schedule {
public:
    // A depth above distinct gathered units - 1 is clamped: more can never be in flight. That of a
    // direction without uses is 0. Throws on ends of optimizer steps that are not ascending numbers
    // of passes up to that of the run.
    explicit Schedule(Plan plan);
    // Of forward_plan().
    Schedule(const std::vector<base::UnitId>& uses, std::int64_t passes, int depth);

    // The next step; false when the run is over.
    bool next(Step& step);

    int depth(Direction direction = Direction::forward) const {
        return depths_[static_cast<std::size_t>(direction)];
    }
    int slots() const { return static_cast<int>(slots_.size()); }
    std::int64_t uses_per_pass() const { return static_cast<std::int64_t>(plan_.pass.size()); }
    std::int64_t uses() const { return total_; }
    const Use& use(std::int64_t use) const {
        return plan_.pass[static_cast<std::size_t>(use % uses_per_pass())];
    }
    base::UnitId unit_of(std::int64_t number) const { return use(number).unit; }
    std::int64_t optimizer_step_of(std::int64_t use) const;
    // The optimizer runs after this use.
    bool ends_step(std::int64_t use) const;
    // Later uses that must have been gathered for when compute `use` is issued: its direction's
    // depth, or the uses that are left of the optimizer step.
    std::int64_t issued_ahead(std::int64_t use) const;
    // The last use that may have been gathered for then, in the same optimizer step: a deeper
    // direction just left may have reached further.
    std::int64_t reach(std::int64_t use) const;
    Gradient gradient_of(std::int64_t use) const;

private:
    struct Slot {
        base::UnitId unit = -1; // -1 = free
        std::int64_t optimizer_step = 0;
    };

    std::int64_t end_of_step(std::int64_t optimizer_step) const; // its last use + 1
    std::int64_t own_reach(std::int64_t use) const;
    int find(std::int64_t use) const; // the slot that holds what this use needs, or -1
    int choose(std::int64_t first, std::int64_t use) const;
    std::int64_t next_use(const Slot& slot, std::int64_t after) const;
    Step step_for(Step::Kind kind, std::int64_t use, int slot) const;

    Plan plan_;
    std::int64_t total_ = 0;
    std::array<int, 2> depths_{}; // by direction
    std::vector<Slot> slots_;
    // Positions in a pass, ascending, of each unit's uses that need weights.
    std::vector<std::vector<std::int64_t>> seen_;
    std::vector<std::int64_t> gathered_in_; // the optimizer step of each unit's latest gather
    std::vector<int> own_slot_;             // of each unit, where it has one
    std::vector<std::int64_t> gradients_;   // in a pass before each position; at the end, of all
    std::int64_t use_ = 0;                  // next to compute
    std::int64_t ahead_ = 0;                // next to look after, in use_ .. own_reach(use_)
};

// Steps in words, one line each, for `--check`: "gather  use 3 layer.2 -> slot 1". At most `limit`
// lines.
std::string describe(Schedule schedule, const std::vector<std::string>& unit_names, int limit);

} // namespace foregather::schedule
