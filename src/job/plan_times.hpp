// SPDX-License-Identifier: Apache-2.0
// What each use, gather and reduction of a pass takes on a described machine, where nothing runs
// beside it: the roofline of each use's work, the ring's time of each unit's bytes. How a schedule
// puts them together is decided by schedule::replay().
#pragma once

#include <string>
#include <vector>

#include <foregather/deck/deck.hpp>
#include <foregather/schedule/replay.hpp>
#include <foregather/shard/layout.hpp>

#include "plan_links.hpp"
#include "plan_work.hpp"

namespace foregather::job {

// What is planned for, in numbers that were achieved or are expected.
struct Machine {
    double product = 0, attention = 0; // flop/s
    double memory_bandwidth = 0;       // bytes/s
    Links links;
    double step_gap = 0; // s
    schedule::Contention contention;
};

// The machine that a deck describes, for these products; its network only where it is needed.
// Throws Error(refused) that names all quantities which are needed and not given.
Machine machine_of(const deck::Deck& deck, base::DType weights, bool over_nodes);
// The keys that machine_of() reads.
std::vector<std::string> machine_keys(base::DType weights, bool over_nodes);

// Of a quantity that is given.
std::string basis_of(const deck::Deck& deck, const std::string& key);

// The less certain of two: measured, published, fitted, assumed.
const std::string& worse(const std::string& a, const std::string& b);

// One setting of a plan.
struct Setting {
    int ranks = 1, shard = 1;
    Load load;

    int replicas() const { return ranks / shard; }
};

// The work's operations over the rate of each kind, or its bytes over the memory's rate if that
// takes longer: products and attention each, and what else touches memory.
double seconds_of(const UseWork& work, const Machine& machine);

struct PlannedModel; // plan_inputs.hpp

// Of a pass, of which a step has `passes`. reduce: the type in which gradients travel. Where one
// rank holds all weights none do: a unit's first gradient of a step lies where it belongs, the
// others are added to it, and each takes its share of that.
schedule::PassTimes times_on(const Machine& machine, const PlannedModel& model,
                             const shard::ArenaPlan& arena, const Setting& setting,
                             base::DType reduce, std::int64_t passes = 1);

} // namespace foregather::job
