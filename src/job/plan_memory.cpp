// SPDX-License-Identifier: Apache-2.0
// Packs as settings have them, handed to the plans of memory.
#include "plan_memory.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>

#include "train_plan.hpp"

namespace foregather::job {

PlannedMemory::PlannedMemory(const deck::Deck& deck, const PlannedModel& model,
                             const std::string& kind, base::DType weights, int ranks_per_node)
    : deck_(deck), model_(model), weights_(weights), needs_(backend::needs_of(kind, 1)),
      ranks_per_node_(ranks_per_node), sections_(deck.sections()) {
    inputs_.config = model.config;
    inputs_.chain = model.chain;
    for (const model::TrainingUse& use : model::training_uses(model.chain)) {
        uses_.push_back(
            {use.unit, use.needs_weights,
             use.backward ? schedule::Direction::backward : schedule::Direction::forward});
    }
}

shard::ArenaPlan PlannedMemory::arena(int shard) const {
    return arena_plan(model_.chain, shard, needs_, weights_);
}

PlannedPass PlannedMemory::pass(const Setting& setting, const shard::ArenaPlan& arena,
                                int depth) const {
    const deck::FsdpSection& fsdp = sections_.fsdp;
    PlannedPass pass;
    if (model_.trains) {
        pass.plan.pass = uses_;
        pass.plan.passes = sections_.train.accumulate;
        pass.plan.step_ends = {pass.plan.passes};
        pass.plan.reshard_after_forward = fsdp.reshard_after_forward;
    } else {
        pass.plan = schedule::forward_plan(model_.chain.unit_order(), 1, depth);
    }
    const base::Bytes slot = base::bytes_of(arena.largest_unit, weights_);
    for (int in_force = depth;; --in_force) {
        pass.plan.forward_depth = pass.plan.backward_depth = in_force;
        const schedule::Schedule schedule(pass.plan);
        pass.forward = schedule.depth(schedule::Direction::forward);
        pass.backward = schedule.depth(schedule::Direction::backward);
        pass.slots = schedule.slots();
        const base::Bytes held = pass.slots * slot;
        if (setting.shard == 1 || fsdp.gather_memory.count == 0 || held <= fsdp.gather_memory) {
            return pass;
        }
        if (in_force == 0 || !pass.plan.reshard_after_forward) {
            base::refuse(deck_.where("fsdp.gather_memory") + " = " +
                         std::to_string(fsdp.gather_memory.count) + " bytes does not hold the " +
                         std::to_string(pass.slots) +
                         (pass.slots == 1 ? " slot of " : " slots of ") +
                         std::to_string(slot.count) + " bytes that are needed at least");
        }
    }
}

MemoryPlan PlannedMemory::plan(const Setting& setting, const PlannedPass& pass) {
    const Transport transport{setting.shard == 1   ? "none"
                              : needs_.host_memory ? "mpi"
                                                   : "nccl",
                              ""};
    const Load& load = setting.load;
    if (!model_.trains) {
        packs_.most_tokens = packs_.most_rows = load.tokens;
        packs_.longest = load.document;
        const Work work{packs_, sections_.score, 1, weights_, needs_, false};
        return plan_memory(model_.config, model_.chain, setting.shard, transport, pass.forward,
                           work);
    }
    sections_.batch.tokens = load.tokens;
    inputs_.items.longest = load.document;
    const base::DType reduce =
        sections_.fsdp.reduce_dtype == "bf16" ? base::DType::bf16 : base::DType::f32;
    TrainSchedule schedule;
    schedule.slots = pass.slots;
    return plan_training_memory(
        {sections_, inputs_, 1, setting.shard, setting.replicas(), weights_, reduce, needs_},
        transport, schedule);
}

base::Bytes PlannedMemory::counted(const MemoryPlan& plan) const {
    return needs_.host_memory ? plan.total() : plan.on_device();
}

std::string PlannedMemory::fits(const Setting& setting, const MemoryPlan& plan) const {
    const deck::Sourced& memory = sections_.machine.memory;
    if (!memory.given()) {
        return "unknown";
    }
    const std::int64_t sharers = needs_.host_memory ? std::min(setting.ranks, ranks_per_node_) : 1;
    return static_cast<double>(sharers * counted(plan).count) <= memory.value ? "yes" : "no";
}

} // namespace foregather::job
