// SPDX-License-Identifier: Apache-2.0
// Where a model's gradients go, unit by unit, in the order of its backward uses. The model never
// learns how they are reduced, or where they are kept.
#pragma once

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/device/stream.hpp>

namespace foregather::shard {

class GradientSink {
public:
    virtual ~GradientSink() = default;

    // Enqueues on `compute` a wait until memory for a gradient is free, and returns it: the unit's
    // elements or more, laid out as its weights are, contents undefined. Valid for work on
    // `compute` enqueued before end(); that work writes all of it, zeros where no parameter is.
    // Does not block. Uses must come in the order of the run's list; another order throws.
    virtual base::View<float> begin(base::UnitId unit, device::Stream& compute) = 0;
    // The gradient of this use is enqueued. A unit with several uses in a pass (a tied head) ends
    // each with a gradient of its own: the sum of all is the unit's.
    virtual void end(base::UnitId unit, device::Stream& compute) = 0;
};

} // namespace foregather::shard
