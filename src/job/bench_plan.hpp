// SPDX-License-Identifier: Apache-2.0
// What a bench will run and hold, before anything is allocated: the same arithmetic for the run and
// for --check.
#pragma once

#include <string>
#include <vector>

#include <foregather/schedule/schedule.hpp>

#include "bench_inputs.hpp"
#include "memory_plan.hpp"
#include "train_plan.hpp"

namespace foregather::job {

// Facts that decide it.
struct BenchGround {
    const deck::Deck& deck;
    const BenchInputs& inputs;
    int ranks = 1; // of a shard group
    int replicas = 1;
    int threads = 1;
    backend::Needs needs{};
    ParamType param;
    std::string copying_transport; // Backend::transport()
    bool can_share = false;
    GroupFacts group;
    int groups_on_node = 1;
};

struct BenchPlan {
    bool trains = false;
    bool offload = false;
    base::DType reduce = base::DType::f32;
    std::int64_t passes_per_step = 1;
    std::vector<Transport> transports;
    std::vector<std::int64_t> tokens; // of a rank and pass
    std::vector<int> depths;          // in force where weights move, as asked for, without doubles
    std::string depths_why;           // they are fewer or less than asked for; "" if they are not
    int slots = 0;                    // where weights move
    MemoryPlan memory;
    // A copy of the deck's sections whose batch is of the most tokens: what training's parts read.
    deck::Sections sections;

    std::int64_t most_tokens() const;
    const std::vector<int>& depths_of(const Transport& transport) const;
    // Turns of a depth, and passes, of the whole bench.
    std::int64_t turns() const;
    std::int64_t passes() const;
};
// Throws Error(refused), with the key's place, for what cannot be.
BenchPlan plan_bench(const BenchGround& ground);

// Throws Error(refused) for an output that a bench cannot have: it goes on with nothing.
void refuse_bench_output(const deck::Deck& deck);
// A clamped default in words, to be told (the ledger tells of keys that were set); and what a bench
// of so few rounds cannot say.
std::vector<std::string> bench_notes(const deck::Deck& deck, const BenchPlan& plan);

// The uses of a pass at a depth of both directions; no passes yet.
schedule::Plan bench_pass(const BenchPlan& plan, const model::Chain& chain, int depth);

// What training's parts are told of the files: no documents, packs of up to the longest.
TrainInputs as_train_inputs(const BenchInputs& inputs, const BenchPlan& plan);

} // namespace foregather::job
