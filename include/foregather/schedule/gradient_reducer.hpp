// SPDX-License-Identifier: Apache-2.0
// Gradients on their way from a pass to the shard: two slots in turn, a reduction of each on a
// stream of its own while the next unit computes, sums in the shard's fp32 accumulator. It knows no
// kernels: what adds and rounds is handed over.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <foregather/comm/communicator.hpp>
#include <foregather/device/device.hpp>
#include <foregather/schedule/schedule.hpp>
#include <foregather/schedule/span.hpp>
#include <foregather/shard/gradient_sink.hpp>
#include <foregather/shard/layout.hpp>

namespace foregather::schedule {

// What the reductions did on this rank, over the run.
struct ReduceFigures {
    std::int64_t reductions = 0; // reduce-scatters, or additions where one rank holds all
    std::int64_t replica_reductions = 0;
    double reduce_s = 0;  // the reduce stream was busy
    double exposed_s = 0; // compute idle: it waited for a slot, or the optimizer for the last one
    double overlapped_s = 0; // the rest of reduce_s, at least 0
    base::Bytes received;
};

class GradientReducer final : public shard::GradientSink {
public:
    // Both enqueue on the stream and do not block.
    struct Arithmetic {
        std::function<void(base::View<const float>, base::Slab, device::Stream&)> convert;
        std::function<void(base::ConstSlab, base::View<float>, device::Stream&)> add;
    };
    struct Memory {
        base::View<float> slots;       // [2][plan.largest_unit]
        base::Slab rounded{};          // [plan.largest_unit] of the reduce type; empty: it is fp32
        base::Slab part{};             // [plan.largest_part] of the reduce type
        base::View<float> accumulator; // [plan.shard_elements]
    };
    struct Groups {
        comm::Communicator* shard = nullptr;    // nullptr: one rank holds all
        comm::Communicator* replicas = nullptr; // nullptr: there is one replica
    };
    // All references and memory must outlive this object; streams must be drained before it goes.
    // timeline_passes: spans kept; 0 = none.
    GradientReducer(const std::vector<shard::UnitSpec>& units, const shard::ArenaPlan& plan,
                    Memory memory, Arithmetic arithmetic, Groups groups, device::Device& device,
                    device::Stream& reduce, std::int64_t timeline_passes);

    // Before the first pass of a segment, when all passes before are collected: see
    // TimedSource::begin_segment(). `plan` is that segment's.
    void begin_segment(const Plan& plan);

    base::View<float> begin(base::UnitId unit, device::Stream& compute) override;
    void end(base::UnitId unit, device::Stream& compute) override;

    // Enqueues on `compute` a wait until all gradients of the step are reduced: after the step's
    // last pass. Then accumulators hold the step's gradient, the same on all replicas.
    void wait_reduced(device::Stream& compute);
    // Of this rank's part of a unit [per_rank]: gradients in units of the loss's sum x scale.
    base::View<float> gradient_of(base::UnitId unit) const;

    // After the pass's work, and that of a wait_reduced() that followed it, is done on the compute
    // stream: reads its events. In order of passes. Does not block.
    void collect_pass();
    ReduceFigures figures() const;
    std::vector<Span> spans() const; // kinds reduce and wait
};

} // namespace foregather::schedule
