// SPDX-License-Identifier: Apache-2.0
// Depths and bytes, from shapes alone.
#include "train_plan.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>
#include <foregather/shard/save.hpp>

#include "limits.hpp"
#include "optimizer.hpp"
#include "train_loop.hpp"

namespace foregather::job {
namespace {

std::string times(std::int64_t n, base::Bytes size) {
    return std::to_string(n) + " x " + in_words(size);
}

Depth clamped_depth(int asked, int in_force, std::size_t units) {
    const bool automatic = asked == deck::automatic;
    if (in_force == most_asked(asked)) {
        return {in_force, "", automatic};
    }
    return {in_force,
            "the model has " + std::to_string(units) + " units: no more than " +
                std::to_string(in_force) + " can be ahead of the one in use",
            automatic};
}

[[noreturn]] void refuse_limit(const deck::Deck& deck, const std::string& what, base::Bytes needed,
                               const std::string& instead) {
    base::refuse(deck.where("fsdp.gather_memory") + " = " +
                 std::to_string(deck.sections().fsdp.gather_memory.count) +
                 " bytes does not hold " + what + ", of " + std::to_string(needed.count) +
                 " bytes; allow that many, or " + instead);
}

// fsdp.gather_memory, as far as it limits what is gathered.
void apply_limit(const deck::Deck& deck, base::Bytes slot, TrainSchedule& schedule) {
    const base::Bytes limit = deck.sections().fsdp.gather_memory;
    if (!schedule.plan.reshard_after_forward) {
        if (schedule.slots * slot > limit) {
            refuse_limit(deck, "all units at once, which fsdp.reshard_after_forward = false keeps",
                         schedule.slots * slot, "set fsdp.reshard_after_forward = true");
        }
        return;
    }
    const std::int64_t fit = limit.count / slot.count;
    if (fit == 0) {
        refuse_limit(deck, "the largest unit", slot,
                     "cut embedding and head smaller with fsdp.piece_bytes");
    }
    for (Depth* depth : {&schedule.forward, &schedule.backward}) {
        if (fit - 1 < depth->units) {
            *depth = {static_cast<int>(fit - 1),
                      "fsdp.gather_memory = " + std::to_string(limit.count) + " bytes holds " +
                          std::to_string(fit) + (fit == 1 ? " slot of " : " slots of ") +
                          std::to_string(slot.count) + " bytes, one of them for the unit in use",
                      depth->automatic};
        }
    }
    schedule = with_depths(schedule, schedule.forward, schedule.backward);
}

} // namespace

ParamType choose_train_param(const std::string& asked, const std::string& device_kind,
                             const TrainInputs& inputs) {
    if (inputs.weights || asked != "auto") {
        static const std::vector<io::StoredTensor> none;
        return choose_param_type(asked, device_kind,
                                 inputs.weights ? inputs.weights->tensors() : none);
    }
    return {base::DType::f32, "random weights are fp32"};
}

TrainSchedule with_depths(const TrainSchedule& schedule, const Depth& forward,
                          const Depth& backward) {
    TrainSchedule result = schedule;
    result.forward = forward;
    result.backward = backward;
    result.plan.forward_depth = forward.units;
    result.plan.backward_depth = backward.units;
    result.slots = schedule::Schedule(result.plan).slots();
    return result;
}

TrainSchedule plan_training_pass(const deck::Deck& deck, const model::Chain& chain,
                                 const shard::ArenaPlan& arena, const Transport& transport,
                                 base::DType weights) {
    const deck::FsdpSection& fsdp = deck.sections().fsdp;
    TrainSchedule result;
    for (const model::TrainingUse& use : model::training_uses(chain)) {
        result.plan.pass.push_back(
            {use.unit, use.needs_weights,
             use.backward ? schedule::Direction::backward : schedule::Direction::forward});
    }
    result.plan.forward_depth = most_asked(fsdp.forward_prefetch);
    result.plan.backward_depth = most_asked(fsdp.backward_prefetch);
    result.plan.reshard_after_forward = fsdp.reshard_after_forward;
    const schedule::Schedule schedule(result.plan);
    result.forward = clamped_depth(
        fsdp.forward_prefetch, schedule.depth(schedule::Direction::forward), chain.units.size());
    result.backward = clamped_depth(
        fsdp.backward_prefetch, schedule.depth(schedule::Direction::backward), chain.units.size());
    for (Depth* depth : {&result.forward, &result.backward}) {
        if (depth->automatic && !moves(transport)) {
            *depth = {0, why_nothing_moves(transport), true};
        }
    }
    if (result.backward.automatic && !fsdp.reshard_after_forward) {
        result.backward = {0, "backward finds all units where forward left them"};
    }
    result = with_depths(result, result.forward, result.backward);
    if (moves(transport) && fsdp.gather_memory.count > 0) {
        apply_limit(deck, base::bytes_of(arena.largest_unit, weights), result);
    }
    return result;
}

schedule::Plan plan_evaluation_pass(const model::Chain& chain, const TrainSchedule& training) {
    schedule::Plan plan;
    for (const base::UnitId unit : chain.unit_order()) {
        plan.pass.push_back({unit, true, schedule::Direction::forward});
    }
    plan.forward_depth = training.forward.units;
    return plan;
}

std::vector<std::string> depth_notes(const TrainSchedule& schedule, const deck::Deck& deck) {
    std::vector<std::string> notes;
    for (const auto& [key, depth] : {std::pair{"fsdp.forward_prefetch", &schedule.forward},
                                     std::pair{"fsdp.backward_prefetch", &schedule.backward}}) {
        if (std::string note = depth_note(*depth, deck, key); !note.empty()) {
            notes.push_back(std::move(note));
        }
    }
    return notes;
}

base::Bytes window_bytes(const shard::ArenaPlan& arena, int ranks, base::DType weights,
                         base::DType reduce) {
    const base::Bytes gradients =
        2 * base::bytes_of(arena.largest_unit, base::DType::f32) +
        (reduce == base::DType::f32 ? base::Bytes{} : base::bytes_of(arena.largest_unit, reduce));
    return base::bytes_of(arena.whole_elements, weights) + ranks * gradients;
}

std::int64_t evaluations_of(const deck::TrainSection& section) {
    const std::int64_t every = section.evaluate_every;
    if (section.evaluate.empty() || every == 0) {
        return section.evaluate.empty() ? 0 : 1;
    }
    return section.steps / every + (section.steps % every == 0 ? 0 : 1);
}

io::CheckpointContent content_of(const TrainInputs& inputs) {
    io::CheckpointContent content;
    content.tensors = shard::tensors_of(inputs.chain.units);
    content.config_json = inputs.config_json;
    content.tokenizer_sha256 = inputs.tokenizer_sha256;
    if (inputs.weights) {
        content.take_origin(*inputs.weights);
    }
    return content;
}

model::TrainingLimits training_limits(const TrainWork& work) {
    return {TrainLoop::most_tokens(work.sections, work.inputs),
            std::max(work.inputs.items.longest, work.inputs.evaluation_items.longest), work.weights,
            work.needs.row_multiple,
            work.sections.train.recompute == "none" ? model::Recompute::none
                                                    : model::Recompute::layer};
}

MemoryPlan plan_training_memory(const TrainWork& work, const Transport& transport,
                                const TrainSchedule& schedule) {
    const model::Chain& chain = work.inputs.chain;
    const shard::ArenaPlan arena = arena_plan(chain, work.ranks, work.needs, work.weights);
    const auto f32 = [](base::Elements n) { return base::bytes_of(n, base::DType::f32); };
    MemoryPlan plan;
    plan.rows.push_back({"weights", base::bytes_of(arena.shard_elements, work.weights),
                         std::string(base::name_of(work.weights)) + ", " +
                             std::to_string(chain.units.size()) + " units over " +
                             std::to_string(work.ranks) + (work.ranks == 1 ? " rank" : " ranks")});
    plan.rows.push_back({"optimizer", Optimizer::state_bytes(arena, work.weights),
                         work.weights == base::DType::f32
                             ? "fp32: both moments, this rank's part of the gradient"
                             : "fp32: weights, both moments, this rank's part of the gradient"});
    if (moves(transport)) {
        plan.slots = schedule.slots;
        plan.slot_bytes = base::bytes_of(arena.largest_unit, work.weights);
        plan.rows.push_back({"slots", plan.slots * plan.slot_bytes,
                             times(plan.slots, plan.slot_bytes) + " for gathered weights"});
    }
    base::Bytes gradients = 2 * f32(arena.largest_unit);
    std::string detail = times(2, f32(arena.largest_unit));
    if (work.ranks > 1) {
        gradients += base::bytes_of(arena.largest_part, work.reduce);
        detail += ", a part that was reduced";
        if (work.reduce != base::DType::f32) {
            gradients += base::bytes_of(arena.largest_unit, work.reduce);
            detail += ", a unit rounded";
        }
    }
    plan.rows.push_back({"gradient slots", gradients, detail});
    const model::TrainingLimits limits = training_limits(work);
    plan.rows.push_back(
        {"activations", model::TrainableTransformer::activation_bytes(work.inputs.config, limits),
         "packs of up to " + std::to_string(limits.tokens) + " tokens, " +
             (limits.recompute == model::Recompute::layer ? "layers computed again in backward"
                                                          : "all of forward kept")});
    plan.rows.push_back({"kernel scratch", work.needs.scratch,
                         work.needs.host_memory ? std::to_string(work.threads) +
                                                      (work.threads == 1 ? " thread" : " threads")
                                                : "products and what kernels need beside them"});
    const std::int64_t tokens = 2 * limits.tokens;
    plan.rows.push_back({"inputs and results",
                         {tokens * (bytes_per_pack_token + host_bytes_per_pack_token)},
                         "two passes",
                         {tokens * host_bytes_per_pack_token}});
    const base::Bytes staging{(work.needs.host_memory ? 1 : 3) * staging_bytes};
    plan.rows.push_back({"staging", staging, "while loading and saving", staging});
    return plan;
}

} // namespace foregather::job
