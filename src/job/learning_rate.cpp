// SPDX-License-Identifier: Apache-2.0
// Schedules and clipping in double.
#include "learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace foregather::job {

double learning_rate(const LearningRate& of, std::int64_t step) {
    if (step <= of.warmup) {
        return of.peak * static_cast<double>(step) / static_cast<double>(of.warmup);
    }
    const std::int64_t length = std::max<std::int64_t>(of.steps - of.warmup, 1);
    const double t =
        std::min(static_cast<double>(step - 1 - of.warmup) / static_cast<double>(length), 1.0);
    switch (of.schedule) {
    case Schedule::cosine:
        return of.min + (of.peak - of.min) * 0.5 * (1.0 + std::cos(std::numbers::pi * t));
    case Schedule::linear:
        return of.peak + (of.min - of.peak) * t;
    case Schedule::constant:
        break;
    }
    return of.peak;
}

double clip_scale(double norm, double limit) {
    return limit > 0 ? std::min(limit / (norm + 1e-6), 1.0) : 1.0;
}

} // namespace foregather::job
