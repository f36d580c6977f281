// SPDX-License-Identifier: Apache-2.0
// The learning rate of a step, and what a gradient is scaled by when its norm is clipped: pure
// functions of the deck and the step. When a step is taken is the job's business.
#pragma once

#include <cstdint>

namespace foregather::job {

enum class Schedule { constant, cosine, linear };

struct LearningRate {
    Schedule schedule = Schedule::cosine;
    double peak = 0;
    double min = 0;          // what cosine and linear go down to
    std::int64_t warmup = 0; // steps; 0: the first step has the peak
    std::int64_t steps = 0;  // of the whole run, warm-up included
};

// Of step `step`, the first is 1. Warm-up: peak * step / warmup, so that no step is lost to a rate
// of 0. Then, with t = (step - 1 - warmup) / (steps - warmup), from 0 in the step after the warm-up
// to one step before 1 in the last: constant: peak; cosine: min + (peak - min) (1 + cos(pi t)) / 2;
// linear: peak + (min - peak) t. These are PyTorch's CosineAnnealingLR and LinearLR, after as many
// calls of step(). Beyond `steps`: what t = 1 gives.
double learning_rate(const LearningRate& of, std::int64_t step);

// Makes the norm of a gradient at most `limit`, 0: no limit. As PyTorch's clip_grad_norm_:
// limit / (norm + 1e-6), at most 1.
double clip_scale(double norm, double limit);

} // namespace foregather::job
