// SPDX-License-Identifier: Apache-2.0
// Where a model's weights come from, unit by unit, in the order of uses that was agreed beforehand.
// The model never learns whether they are sharded, gathered or resident.
#pragma once

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/device/stream.hpp>

namespace foregather::shard {

class WeightSource {
public:
    virtual ~WeightSource() = default;

    // Enqueues on `compute` a wait until the unit's weights are there, and returns where they will
    // be then. Valid for work on `compute` enqueued before release(). Does not block. Uses must
    // come in the order of the run's list; another order throws.
    virtual base::ConstSlab acquire(base::UnitId unit, device::Stream& compute) = 0;
    // The unit's work of this use is enqueued; its memory may be reused after that work.
    virtual void release(base::UnitId unit, device::Stream& compute) = 0;
};

} // namespace foregather::shard
