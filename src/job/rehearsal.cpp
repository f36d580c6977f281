// SPDX-License-Identifier: Apache-2.0
// The plan that every rehearsal has: its job's uses, one gather at a time.
#include "rehearsal.hpp"

#include <exception>

namespace foregather::job {

Rehearsal::Rehearsal(device::Device& device, device::Stream& compute, schedule::Plan plan,
                     std::int64_t passes_per_step)
    : device_(device), compute_(compute), plan_(std::move(plan)),
      passes_per_step_(passes_per_step) {
    plan_.passes = 0;
    plan_.step_ends.clear();
    plan_.forward_depth = 0;
    plan_.backward_depth = 0;
    plan_.reshard_after_forward = true;
}

schedule::Plan segment_of(schedule::Plan plan, std::int64_t steps, std::int64_t passes) {
    plan.passes = steps * passes;
    for (std::int64_t step = 1; step <= steps; ++step) {
        plan.step_ends.push_back(step * passes);
    }
    return plan;
}

Rehearsal::Drain::~Drain() {
    try {
        compute_.sync();
    } catch (const std::exception&) { // a stream has failed: whoever waited has thrown it
    }
}

} // namespace foregather::job
