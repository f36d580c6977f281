// SPDX-License-Identifier: Apache-2.0
// Gradients on their way from a pass to the shard: two slots in turn, a reduction of each on a
// stream of its own while the next unit computes, sums in the shard's fp32 accumulator. It knows no
// kernels: what adds and rounds is handed over.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <foregather/comm/communicator.hpp>
#include <foregather/device/device.hpp>
#include <foregather/schedule/schedule.hpp>
#include <foregather/schedule/span.hpp>
#include <foregather/shard/gradient_sink.hpp>
#include <foregather/shard/layout.hpp>

namespace foregather::schedule {

// What the reductions did on this rank, over the run. A wait for a slot lies within the compute of
// the use that it held up.
struct ReduceFigures {
    std::int64_t reductions = 0; // reduce-scatters, or additions where one rank holds all
    std::int64_t replica_reductions = 0;
    double reduce_s = 0;  // the reduce stream was busy
    double exposed_s = 0; // compute idle: it waited for a slot, or the optimizer for the last one
    double overlapped_s = 0; // the rest of reduce_s, at least 0
    std::int64_t exposed_waits = 0;
    base::Bytes received; // from the shard group and from replicas
};

class GradientReducer final : public shard::GradientSink {
public:
    // All enqueue on the stream and do not block.
    struct Arithmetic {
        std::function<void(base::View<const float>, base::Slab, device::Stream&)> convert;
        std::function<void(base::ConstSlab, base::View<float>, device::Stream&)> add;
        std::function<void(base::View<float>, device::Stream&)> clear;
    };
    // `slots` and `rounded` are of the shard communicator's allocate(), if there is one.
    // Where one rank holds all, `rounded` and `part` are not used: nothing is sent over a shard
    // group. Sums over replicas are of fp32.
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

    // Before the first pass of a segment, when all passes before are collected and reduced: see
    // TimedSource::begin_segment(). `plan` is that segment's.
    void begin_segment(const Plan& plan);

    // Where one rank holds all, a unit's first gradient of an optimizer step is written where it
    // stays.
    base::View<float> begin(base::UnitId unit, device::Stream& compute) override;
    void end(base::UnitId unit, device::Stream& compute) override;

    // Enqueues on `compute` a wait until all gradients of the step are reduced: after the step's
    // last pass, and only there. Then accumulators hold the step's gradient, the same on all
    // replicas.
    void wait_reduced(device::Stream& compute);
    // Of this rank's part of a unit [per_rank]: gradients in units of the loss's sum x scale.
    base::View<float> gradient_of(base::UnitId unit) const;

    // After the pass's work, and that of a wait_reduced() that followed it, is done on the compute
    // stream: reads its events, and leaves those of reductions under way to the next call. In order
    // of passes. Does not block.
    void collect_pass();
    // The earliest reduction that is enqueued and not done. Does not block.
    std::optional<Underway> underway() const;
    ReduceFigures figures() const { return figures_; }       // of what has been read
    std::vector<Span> spans() const { return spans_.all(); } // kinds reduce and wait

private:
    struct Events {
        std::unique_ptr<device::Event> begin, end;
    };
    struct Entry {     // one gradient
        Span span;     // of its reduction
        Gradient turn; // of the schedule
        std::int64_t wait_issued_ns = 0;
        bool in_place = false; // written where it stays
        bool reduced = false;  // anything was enqueued on the reduce stream
        bool to_replicas = false;
        const Entry* before = nullptr; // whose slot it had to wait for
        std::unique_ptr<device::Event> computed, freed;
        Events wait, reduce; // wait: on the compute stream
    };
    struct StepWait { // wait_reduced() after a pass
        bool enqueued = false;
        std::unique_ptr<device::Event> drained; // on the reduce stream
        Events wait;
        std::int64_t issued_ns = 0;
    };

    bool rounds() const { return groups_.shard != nullptr && memory_.rounded.n > 0; }
    std::int64_t per_pass() const { return std::ssize(positions_); }
    // Of the run's gradients, by number.
    std::int64_t pass_of(std::int64_t number) const { return number / per_pass(); }
    std::int64_t use_of(std::int64_t number) const; // in the segment
    Entry& entry(std::int64_t number) {
        return ring_[static_cast<std::size_t>(number) % ring_.size()];
    }
    StepWait& step_wait(std::int64_t pass) {
        return step_waits_[static_cast<std::size_t>(pass) % step_waits_.size()];
    }
    void make_rings();
    void check_memory() const;
    void wait_for_slot(Entry& entry, device::Stream& compute);
    base::View<float> slot_of(const Entry& entry) const;
    void add_to_accumulator(Entry& entry);
    void reduce_scatter(Entry& entry);
    void reduce_over_replicas(Entry& entry);
    std::string what(const Entry& entry, const char* over) const;
    void read(const Entry& entry);
    void read_step_wait(std::int64_t pass);
    void add_wait(Span span, const Events& wait, const device::Event& until);

    const std::vector<shard::UnitSpec>& units_;
    const shard::ArenaPlan& arena_;
    Memory memory_;
    Arithmetic arithmetic_;
    Groups groups_;
    device::Device& device_;
    device::Stream& reduce_;
    ReduceFigures figures_;
    SpanStore spans_;
    RangeNames names_;
    std::optional<Schedule> schedule_;    // of the segment
    std::vector<std::int64_t> positions_; // of uses with a gradient in a pass
    std::vector<Entry> ring_;
    std::vector<StepWait> step_waits_; // a ring, by pass
    std::array<std::int64_t, 2> latest_in_slot_ = {-1, -1};
    std::int64_t number_ = 0;                          // of the next gradient
    std::int64_t read_ = 0;                            // gradients whose events have been read
    std::int64_t segment_begin_ = 0, segment_end_ = 0; // gradients
    std::int64_t collected_ = 0;                       // passes
    bool begun_ = false;
};

} // namespace foregather::schedule
