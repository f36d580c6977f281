// SPDX-License-Identifier: Apache-2.0
// What a rank keeps of training between steps: its parts of the fp32 weights, of both moments and
// of the step's gradient, and AdamW on them. When a step is taken, and at which rate, is decided
// elsewhere.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <foregather/device/device.hpp>
#include <foregather/kernels/training.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/schedule/source.hpp>
#include <foregather/shard/layout.hpp>

#include "shard_ranges.hpp"

namespace foregather::job {

class Optimizer {
public:
    struct Parts { // all must outlive the optimizer
        const model::Chain& chain;
        const shard::ArenaPlan& plan;
        int shard_rank = 0;
        Decay decay = Decay::matrices;
        base::DType weights = base::DType::f32;           // of the arena
        std::function<base::Slab(base::UnitId)> in_arena; // this rank's part, as it is gathered
        device::Device& device;
        kernels::Kernels& kernels;
    };
    // Allocates all memory; moments are zero once what is enqueued on `compute` is done.
    Optimizer(Parts parts, device::Stream& compute);

    // This rank's part of a unit [per_rank], in device memory. Weights are the arena's own where
    // that is fp32, else the master that the arena is rounded from.
    base::View<float> weights(base::UnitId unit) const;
    base::View<float> first_moment(base::UnitId unit) const { return of(unit, first_); }
    base::View<float> second_moment(base::UnitId unit) const { return of(unit, second_); }
    base::View<float> gradient(base::UnitId unit) const { return of(unit, gradient_); }
    base::View<float> gradients() const { return gradient_.view(); } // [plan.shard_elements]

    // Enqueues the arena's weights, rounded from the masters: once these are loaded.
    void publish(device::Stream& compute);

    // Enqueues the sum of squares of this rank's part of the gradient, padding left out, on its way
    // to the host; does not block. `squares()` may be asked for when that is done.
    void sum_squares(device::Stream& compute);
    double squares() const { return squares_on_host_.view()[0]; }

    // Enqueues one step, unit by unit in the order of first use, and tells `source` of each. The
    // step's weight decay is for ranges that decay.
    void step(const kernels::AdamwStep& step, schedule::TimedSource& source,
              device::Stream& compute);
    // As the kernels were given it by the latest step().
    const kernels::AdamwStep& latest() const { return latest_; }
    // The step is not taken: weights stay, what waits for them may go on.
    void skip(schedule::TimedSource& source, device::Stream& compute);

    // Seconds of the latest step() on the compute stream, once; 0 if there is none that was not
    // asked for. Blocks until it is done.
    double take_seconds();
    // What a step() would take, from AdamW on the quarters of the gradient, which is of no use
    // between steps, as if they were the four arrays. Weights and moments stay. Blocks.
    double time_update(device::Stream& compute);

    static base::Bytes state_bytes(const shard::ArenaPlan& plan, base::DType weights);

private:
    base::View<float> of(base::UnitId unit, const device::Buffer<float>& buffer) const;
    void update(base::UnitId unit, const kernels::AdamwStep& step, device::Stream& compute);

    Parts p_;
    device::Buffer<float> master_; // empty where the arena is fp32
    device::Buffer<float> first_, second_, gradient_;
    device::Buffer<double> squares_;
    device::HostBuffer<double> squares_on_host_;
    std::vector<std::vector<ShardRange>> ranges_; // of each unit
    std::unique_ptr<device::Event> begin_, end_;
    device::Device::RangeName name_ = nullptr;
    kernels::AdamwStep latest_;
    bool untold_ = false; // a step's time
};

} // namespace foregather::job
