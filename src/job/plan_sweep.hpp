// SPDX-License-Identifier: Apache-2.0
// Every setting of a plan in turn: memory of a rank, the replay of its schedule, from how many
// tokens on nothing is exposed, how the ranks scale. Where times come from is a TimeSource's to
// say.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <foregather/deck/deck.hpp>
#include <foregather/schedule/replay.hpp>

#include "memory_plan.hpp"
#include "plan_inputs.hpp"
#include "plan_times.hpp"

namespace foregather::job {

// Times of a pass at any setting.
class TimeSource {
public:
    virtual ~TimeSource() = default;
    virtual schedule::PassTimes times(const Setting& setting,
                                      const shard::ArenaPlan& arena) const = 0;
    virtual schedule::Contention contention() const = 0;
    // How well they are known: that of the least certain quantity in them.
    virtual std::string basis(const Setting& setting) const = 0;
    virtual int ranks_per_node() const = 0;
    // What computes: "cuda" or "host".
    virtual std::string kind() const = 0;
    // Of the link that they were measured on, in bytes/s, where it was emulated; 0: none was.
    virtual double emulated_rate() const = 0;
    // The type of gathered weights.
    virtual base::DType weights() const = 0;
    // Tokens of a document in a pack of so many.
    virtual base::Elements document(base::Elements tokens) const = 0;
    // Keys of the section machine that they come from.
    virtual std::vector<std::string> keys() const = 0;
    // Where they come from, in a line.
    virtual std::string origin() const = 0;
};

// On the machine that the deck describes. Throws Error(refused) as machine_of().
std::unique_ptr<TimeSource> described_times(const deck::Deck& deck, const PlannedModel& model);

// The schedule is hidden where less than this share of a step is exposed.
inline constexpr double hidden_share = 0.02;

struct PlanRow {
    Setting setting;
    std::int64_t asked_shard = 0;                   // of plan.shards
    int asked_depth = 0, forward = 0, backward = 0; // the latter two in force
    int slots = 0;
    base::Bytes slot_bytes, memory; // memory: of a rank, on its device
    std::string fits;               // "yes", "no", "unknown"
    schedule::Replayed replayed;
    std::string basis;       // of all times: measured, published, fitted or assumed
    double untaxed_step = 0; // s: if nothing slowed anything else down
    std::int64_t passes = 1; // of a step
    double tokens_per_s = 0, per_rank = 0;
    double efficiency = 1;        // per_rank to that of the fewest ranks
    std::int64_t hidden_from = 0; // tokens of a rank and pass, T*; 0: none
    std::vector<std::string> warnings;

    double exposed_share() const { return replayed.exposed() / replayed.step; }
};

// What a unit moves and takes, once for each number of ranks, shard and tokens.
struct PlanUnits {
    Setting setting;
    shard::ArenaPlan arena;
    schedule::PassTimes times;
};

struct Sweep {
    std::vector<PlanRow> rows; // ranks, shards, tokens, depths: the last runs fastest
    std::vector<PlanUnits> units;
    MemoryPlan first_memory; // of the first row
};

// Throws Error(refused) where fsdp.gather_memory holds not even one unit.
Sweep sweep(const deck::Deck& deck, const PlannedModel& model, const TimeSource& source);

} // namespace foregather::job
