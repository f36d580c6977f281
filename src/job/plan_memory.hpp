// SPDX-License-Identifier: Apache-2.0
// The schedule and the memory of a planned pass: the arithmetic of plan_memory() and
// plan_training_memory(), for packs that no token file holds.
#pragma once

#include <string>

#include <foregather/deck/deck.hpp>
#include <foregather/schedule/schedule.hpp>

#include "memory_plan.hpp"
#include "plan_inputs.hpp"
#include "plan_times.hpp"
#include "train_inputs.hpp"

namespace foregather::job {

struct PlannedPass {
    schedule::Plan plan;           // of one optimizer step, or of one pass of a score
    int forward = 0, backward = 0; // depths in force
    int slots = 0;
};

class PlannedMemory {
public:
    // model must outlive it. kind: "cuda" or "host", how memory is counted.
    PlannedMemory(const deck::Deck& deck, const PlannedModel& model, const std::string& kind,
                  base::DType weights, int ranks_per_node);

    base::DType weights() const { return weights_; }
    const backend::Needs& needs() const { return needs_; }
    shard::ArenaPlan arena(int shard) const;

    // At this depth, as far as the model's units and fsdp.gather_memory let it be. Throws
    // Error(refused) where that holds not even one unit, or not all that
    // fsdp.reshard_after_forward = false keeps.
    PlannedPass pass(const Setting& setting, const shard::ArenaPlan& arena, int depth) const;

    MemoryPlan plan(const Setting& setting, const PlannedPass& pass);
    // What lies in the memory that machine.memory tells of, of one rank.
    base::Bytes counted(const MemoryPlan& plan) const;
    // "yes", "no", or "unknown" where the machine does not say how much it has.
    std::string fits(const Setting& setting, const MemoryPlan& plan) const;

private:
    const deck::Deck& deck_;
    const PlannedModel& model_;
    base::DType weights_;
    backend::Needs needs_;
    int ranks_per_node_;
    std::vector<schedule::Use> uses_; // of a training pass
    deck::Sections sections_;         // with batch.tokens of the setting at hand
    TrainInputs inputs_;              // with an item as long as its documents
    PackPlan packs_;
};

} // namespace foregather::job
