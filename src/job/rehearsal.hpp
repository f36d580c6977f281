// SPDX-License-Identifier: Apache-2.0
// A job's passes without its results: the same kernels, gathers and reductions in the same order,
// on inputs that stay, leaving weights as they are. What is measured of them is others' business.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <foregather/schedule/gradient_reducer.hpp>
#include <foregather/schedule/source.hpp>

#include "packs.hpp"

namespace foregather::job {

class Rehearsal {
public:
    virtual ~Rehearsal() = default;
    Rehearsal(const Rehearsal&) = delete;
    Rehearsal& operator=(const Rehearsal&) = delete;

    // The uses of a pass, at depth 0 with weights resharded: one slot is enough for it. No passes.
    const schedule::Plan& plan() const { return plan_; }
    // Of an optimizer step; where there is no optimizer, a step is a pass.
    std::int64_t passes_per_step() const { return passes_per_step_; }

    // What all following passes compute: copied to the device, in memory for packs of up to so many
    // tokens as the rehearsal was made for. Nothing may be in flight. Does not block.
    virtual void take(const PackInputs& inputs) = 0;

    // Where weights come from, and where gradients go.
    struct Ends {
        schedule::TimedSource& source;                // of plan(), at any depths
        schedule::GradientReducer* reducer = nullptr; // nullptr: gradients are dropped
    };
    struct StepSeconds { // by the compute stream's clock
        // From the end of the step before to this one's; of the first one, from its begin.
        double step = 0;
        // Of it, where compute was not in a use, an optimizer or a wait for reductions; of the
        // first one 0.
        double between = 0;
        double optimizer = 0;
    };
    // Called with the number of a step when all its passes are collected.
    using Collected = std::function<void(std::int64_t)>;
    // Plays so many steps in a row as a segment of both ends, with two passes in flight as in the
    // job. Collective where there is an optimizer; blocks until all is done.
    virtual std::vector<StepSeconds> play(const Ends& ends, std::int64_t steps,
                                          const Collected& collected) = 0;

    // A reducer of gradients beside that of the run, which keeps all its spans; nullptr where there
    // are no gradients. Nothing of another may be in flight when it is used.
    virtual std::unique_ptr<schedule::GradientReducer> reducer() { return nullptr; }
    // Are gradients summed over replicas too?
    virtual bool replicas() const { return false; }
    // The time of an update of all this rank's weights, where play() makes none; 0 elsewhere.
    // Blocks. Leaves weights and moments as they are.
    virtual double update_s() { return 0; }

    device::Device& device() const { return device_; }
    device::Stream& compute() const { return compute_; }

protected:
    // The last member of a rehearsal: nothing of it is in flight when its memory goes, also while
    // an exception is on its way.
    class Drain {
    public:
        explicit Drain(device::Stream& compute) : compute_(compute) {}
        ~Drain();
        Drain(const Drain&) = delete;
        Drain& operator=(const Drain&) = delete;

    private:
        device::Stream& compute_;
    };

    // Both must outlive the rehearsal.
    Rehearsal(device::Device& device, device::Stream& compute, schedule::Plan plan,
              std::int64_t passes_per_step);

private:
    device::Device& device_;
    device::Stream& compute_;
    schedule::Plan plan_;
    std::int64_t passes_per_step_;
};

// The plan with so many steps of so many passes.
schedule::Plan segment_of(schedule::Plan plan, std::int64_t steps, std::int64_t passes);

// Kept spans of a source or reducer whose passes are few.
inline constexpr std::int64_t all_passes = std::int64_t{1} << 20;

} // namespace foregather::job
