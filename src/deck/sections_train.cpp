// SPDX-License-Identifier: Apache-2.0
// The part of the key table that is the job train's alone: the optimizer, what it is fed, when it
// is judged, and its checkpoints. The other keys of a training run are in sections.cpp.
#include <foregather/deck/sections.hpp>

#include "table.hpp"

namespace foregather::deck {

namespace {

// 1 would never forget.
constexpr double most_beta = 0.999999999;

// Marks: identity is what decides the numbers of the steps that are still to come. A run may be
// made longer: whether that changes its learning rates depends on train.schedule, so the job judges
// it.
constexpr Row rows[] = {
    {"train.steps", [](Sections& s) -> Field { return &s.train.steps; }, whole(1, 1000000000),
     "steps", "train", required, Mark::told,
     "Optimizer steps of the whole run, with those of earlier starts. A run that goes on may be "
     "made longer if train.schedule is constant; the other schedules are laid out over the whole "
     "run."},
    {"train.learning_rate", [](Sections& s) -> Field { return &s.train.learning_rate; },
     real(1e-12, 1e3), "", "train", required, Mark::identity,
     "The highest learning rate, which the schedule begins with after the warm-up."},
    {"train.schedule", [](Sections& s) -> Field { return &s.train.schedule; },
     one_of("constant cosine linear"), "", "train", optional, Mark::identity,
     "How the learning rate goes on after the warm-up: constant, or by a half cosine or a line "
     "down to train.min_learning_rate at the end of train.steps."},
    {"train.warmup_steps", [](Sections& s) -> Field { return &s.train.warmup_steps; },
     whole(0, most), "steps", "train", optional, Mark::identity,
     "The first steps of the run, in which the learning rate rises in equal steps to "
     "train.learning_rate."},
    {"train.min_learning_rate", [](Sections& s) -> Field { return &s.train.min_learning_rate; },
     real(0, 1e3), "", "train", optional, Mark::identity,
     "Where the schedules cosine and linear end; at most train.learning_rate."},
    {"train.beta1", [](Sections& s) -> Field { return &s.train.beta1; }, real(0, most_beta), "",
     "train", optional, Mark::identity,
     "AdamW: how much of the mean of the gradients each step keeps."},
    {"train.beta2", [](Sections& s) -> Field { return &s.train.beta2; }, real(0, most_beta), "",
     "train", optional, Mark::identity,
     "AdamW: how much of the mean of their squares each step keeps."},
    {"train.epsilon", [](Sections& s) -> Field { return &s.train.epsilon; }, real(1e-30, 1), "",
     "train", optional, Mark::identity,
     "AdamW: added to the root of the mean square that a step is divided by."},
    {"train.weight_decay", [](Sections& s) -> Field { return &s.train.weight_decay; }, real(0, 100),
     "", "train", optional, Mark::identity,
     "AdamW: each step takes this share of the learning rate off the weights, apart from the "
     "gradient; 0: off."},
    {"train.decay", [](Sections& s) -> Field { return &s.train.decay; }, one_of("matrices all"), "",
     "train", optional, Mark::identity,
     "Which weights decay. matrices: tensors of two dimensions or more, so no norms and biases."},
    {"train.gradient_clip_norm", [](Sections& s) -> Field { return &s.train.gradient_clip_norm; },
     real(0, 1e9), "", "train", optional, Mark::identity,
     "Scale the gradient down to this norm, taken over all weights, if it is larger; 0: never."},
    {"train.accumulate", [](Sections& s) -> Field { return &s.train.accumulate; },
     whole(1, most_int), "packs", "train bench plan", optional, Mark::identity,
     "Packs of batch.tokens that each rank computes for one optimizer step. The run keeps the "
     "size of a step's batch that this gives at its first start, at any number of ranks."},
    {"train.batch_documents", [](Sections& s) -> Field { return &s.train.batch_documents; },
     whole(0, most), "documents", "train", optional, Mark::identity,
     "Documents, or windows of them, of one optimizer step over all ranks, however many packs "
     "that takes; 0: what fills batch.tokens x train.accumulate on all ranks. Set, it makes the "
     "batches, and so the losses, those of any number of ranks."},
    {"train.recompute", [](Sections& s) -> Field { return &s.train.recompute; },
     one_of("layer none"), "", "train bench plan", optional, Mark::told,
     "layer: of forward only each layer's input is kept, and backward computes the rest of the "
     "layer again. none: all is kept. Changes memory and time, no bit."},
    {"train.seed", [](Sections& s) -> Field { return &s.train.seed; }, whole(0, most), "", "train",
     optional, Mark::identity, "Which order train.shuffle brings the documents into."},
    {"train.shuffle", [](Sections& s) -> Field { return &s.train.shuffle; }, boolean(), "", "train",
     optional, Mark::identity,
     "Take the documents in another random order in each epoch, the same at any number of ranks; "
     "false: in the order of the file."},
    {"train.max_bad_steps", [](Sections& s) -> Field { return &s.train.max_bad_steps; },
     whole(1, most_int), "steps", "train", optional, Mark::free,
     "A step whose loss or gradient norm is not finite is not applied, and told; after this many "
     "in a row the job ends with status 1."},
    {"train.evaluate", [](Sections& s) -> Field { return &s.train.evaluate; }, path_or_none(), "",
     "train", optional, Mark::told,
     "Token file of held-out documents, whose loss is computed and not learnt from; empty: none."},
    {"train.evaluate_every", [](Sections& s) -> Field { return &s.train.evaluate_every; },
     whole(0, most), "steps", "train", optional, Mark::told,
     "Evaluate after every so many steps, and at the end; 0: at the end alone."},

    {"checkpoint.directory", [](Sections& s) -> Field { return &s.checkpoint.directory; },
     path_or_none(), "", "train", optional, Mark::free,
     "Folder of the checkpoints, step-00000010.h5 for that of step 10; made if it is not there. "
     "Each holds the whole model and all that a run needs to go on, on any number of ranks. Empty: "
     "none is written."},
    {"checkpoint.every", [](Sections& s) -> Field { return &s.checkpoint.every; }, whole(0, most),
     "steps", "train", optional, Mark::free,
     "Write one after every so many steps, and at the end; 0: at the end alone."},
    {"checkpoint.keep", [](Sections& s) -> Field { return &s.checkpoint.keep; }, whole(0, most_int),
     "checkpoints", "train", optional, Mark::free,
     "Once one is complete, remove older ones until so many are left; 0: keep all. There must be "
     "room for one more while it is written."},
    {"checkpoint.resume", [](Sections& s) -> Field { return &s.checkpoint.resume; },
     word_or_path("auto none"), "", "train", optional, Mark::free,
     "auto: go on from the newest complete checkpoint in checkpoint.directory, if there is one. "
     "none: begin at step 1. Or the checkpoint to go on from."},
    {"checkpoint.load_optimizer", [](Sections& s) -> Field { return &s.checkpoint.load_optimizer; },
     boolean(), "", "train", optional, Mark::free,
     "Go on with the optimizer's moments as well; false: begin them anew, from zero."},
};

} // namespace

std::span<const Row> training_rows() { return rows; }

} // namespace foregather::deck
