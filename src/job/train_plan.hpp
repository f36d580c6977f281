// SPDX-License-Identifier: Apache-2.0
// What training will do and hold on a rank, before anything is allocated: the uses of a pass, both
// depths, slots, and memory. The same arithmetic for the run and for --check.
#pragma once

#include <string>
#include <vector>

#include <foregather/io/checkpoint_file.hpp>
#include <foregather/model/training.hpp>
#include <foregather/schedule/schedule.hpp>

#include "memory_plan.hpp"
#include "train_inputs.hpp"

namespace foregather::job {

// As choose_param_type(); random weights are fp32 unless bf16 is asked for.
ParamType choose_train_param(const std::string& asked, const std::string& device_kind,
                             const TrainInputs& inputs);

// What depths and slots a training pass has, and why they are not what was asked for.
struct TrainSchedule {
    schedule::Plan plan;     // of a pass; no passes yet
    Depth forward, backward; // in force
    int slots = 0;           // where weights move
};
// Throws Error(refused), with the numbers, where fsdp.gather_memory holds not one unit, or not all
// with fsdp.reshard_after_forward = false.
TrainSchedule plan_training_pass(const deck::Deck& deck, const model::Chain& chain,
                                 const shard::ArenaPlan& arena, const Transport& transport,
                                 base::DType weights);
// The forward uses of an evaluation's pass.
schedule::Plan plan_evaluation_pass(const model::Chain& chain, const TrainSchedule& training);

// The same with these depths in force.
TrainSchedule with_depths(const TrainSchedule& schedule, const Depth& forward,
                          const Depth& backward);

// Clamped defaults, and what `auto` may become, in words, to be told.
std::vector<std::string> depth_notes(const TrainSchedule& schedule, const deck::Deck& deck);

// Evaluations of a run of train.steps steps.
std::int64_t evaluations_of(const deck::TrainSection& section);
// What all checkpoints of a run have, without a state.
io::CheckpointContent content_of(const TrainInputs& inputs);

// What shared windows of one shard group hold: its weights, and every rank's gradients on their way
// to the others.
base::Bytes window_bytes(const shard::ArenaPlan& arena, int ranks, base::DType weights,
                         base::DType reduce);

struct TrainWork {
    const deck::Sections& sections;
    const TrainInputs& inputs;
    int threads = 1;
    int ranks = 1; // of a shard group
    int replicas = 1;
    base::DType weights = base::DType::f32; // of the arena
    base::DType reduce = base::DType::f32;
    backend::Needs needs{};
};
model::TrainingLimits training_limits(const TrainWork& work);
MemoryPlan plan_training_memory(const TrainWork& work, const Transport& transport,
                                const TrainSchedule& schedule);

} // namespace foregather::job
