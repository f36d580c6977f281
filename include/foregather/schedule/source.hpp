// SPDX-License-Identifier: Apache-2.0
// The three sources of weights: gathered by a schedule, resident on one rank, or read in place from
// a window that ranks of a node share. All keep the same record of what they did.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <foregather/comm/communicator.hpp>
#include <foregather/device/device.hpp>
#include <foregather/schedule/schedule.hpp>
#include <foregather/schedule/span.hpp>
#include <foregather/schedule/staged_parts.hpp>
#include <foregather/schedule/witness.hpp>
#include <foregather/shard/layout.hpp>
#include <foregather/shard/weight_source.hpp>

namespace foregather::schedule {

struct SourceOptions {
    std::vector<base::UnitId> uses; // of one pass
    std::int64_t passes = 0;
    int depth = 1;                      // as the deck asks; clamped by the schedule
    std::int64_t judged_compute_ns = 0; // shortest compute that the verdict judges
    std::int64_t timeline_passes = 0;   // spans kept; 0 = none
};

// Times every use with events and feeds the witness. At most two passes may be uncollected.
class TimedSource : public shard::WeightSource {
public:
    base::ConstSlab acquire(base::UnitId unit, device::Stream& compute) final;
    void release(base::UnitId unit, device::Stream& compute) final;

    // Before the uses of a pass; has_tokens: will this rank compute anything in it?
    void begin_pass(bool has_tokens);
    // After the pass's work is done on the compute stream, or it throws: reads its events. In order
    // of passes. Does not block.
    void collect_pass();

    PrefetchFigures figures() const { return witness_.figures(); }
    std::vector<Span> spans() const { return spans_.all(); }
    int depth() const { return depth_; }

    // Gathers enqueued, uses that waited for one, and slots given back: equal at the end of a run.
    std::int64_t issued() const { return issued_; }
    std::int64_t waited() const { return waited_; }
    virtual std::int64_t freed() const { return 0; }
    virtual int slots() const { return 0; }
    virtual base::Bytes slot_bytes() const { return {0}; }
    // Of this rank's own parts, what all gathers have taken: where parts lie in host memory, the
    // bytes that were copied up.
    base::Bytes own_bytes() const { return own_bytes_; }

protected:
    struct Events {
        std::unique_ptr<device::Event> begin, end;
    };
    struct Entry { // one use in flight
        UseRecord record;
        Events gather, compute;
        const Events* slot_used = nullptr; // the compute that last used the slot before this gather
        std::int64_t part_number = 0;      // of the copy that brought this gather's part
    };

    TimedSource(const SourceOptions& options, device::Device& device, int depth, bool moves);

    // Makes the weights of the use's unit available on `compute`, and fills the record's gather
    // part.
    virtual base::ConstSlab fetch(Entry& entry, device::Stream& compute) = 0;

    // When what a gather that is done read was there; 0: always.
    virtual std::int64_t part_there_ns(const Entry&) { return 0; }
    // Spans beside those of uses that were enqueued before `pass`: to be added.
    virtual void collect_others(std::int64_t /*pass*/) {}

    void add_span(const Span& span) { spans_.add(span); }
    std::int64_t pass() const { return pass_; }
    Entry& entry(std::int64_t use);
    std::int64_t next_sequence() { return sequence_++; }
    device::Device& device() { return device_; }
    const std::vector<base::UnitId>& uses() const { return uses_; }

    std::int64_t issued_ = 0, waited_ = 0;
    base::Bytes own_bytes_;

private:
    void collect(Entry& entry);

    device::Device& device_;
    std::vector<base::UnitId> uses_;
    std::int64_t passes_;
    int depth_;
    Witness witness_;
    SpanStore spans_;
    std::vector<Entry> ring_;
    std::vector<bool> tokens_in_pass_; // of the passes in the ring
    std::int64_t sequence_ = 1;
    std::int64_t use_ = 0;       // next to acquire
    std::int64_t pass_ = -1;     // of that use
    std::int64_t collected_ = 0; // uses read off
    UseRecord previous_;         // the last one read off
    bool acquired_ = false;
};

// Runs a Schedule: gathers on a stream of its own, into depth + 1 slots. This is where the gather
// of use i + depth is enqueued, before compute i.
class Prefetcher final : public TimedSource {
public:
    // Where this rank's part of each unit lies, and memory for the slots:
    // [slots][plan.largest_unit]. Parts that lie in host memory, and are gathered from the
    // device's, have two stages [2][plan.largest_part].
    struct GatherMemory {
        StagedParts::Part part;
        base::Slab slots;
        StagedParts::Stages stages{};
    };
    // All references and memory must outlive this object, and the streams must be drained before it
    // goes.
    Prefetcher(const SourceOptions& options, const std::vector<shard::UnitSpec>& units,
               const shard::ArenaPlan& plan, GatherMemory memory, comm::Communicator& communicator,
               device::Device& device, device::Stream& gather);

    int slots() const override { return schedule_.slots(); }
    base::Bytes slot_bytes() const override;
    std::int64_t freed() const override;

private:
    base::ConstSlab fetch(Entry& entry, device::Stream& compute) override;
    std::int64_t part_there_ns(const Entry& entry) override;
    void collect_others(std::int64_t pass) override;
    void gather(const Step& step);
    base::Slab slot_memory(int slot, base::Elements n) const;

    const std::vector<shard::UnitSpec>& units_;
    const shard::ArenaPlan& plan_;
    GatherMemory memory_;
    comm::Communicator& communicator_;
    device::Stream& gather_stream_;
    Schedule schedule_;
    struct Slot {
        base::UnitId unit = -1;
        std::int64_t gathered_for = -1; // the use whose entry holds the gather's events
        std::int64_t sequence = 0;
        std::int64_t last_use = -1; // the latest use that computed from it
    };
    std::vector<Slot> slots_;
    std::unique_ptr<StagedParts> staged_; // where there are stages
    std::int64_t evicted_ = 0;
};

// Whole units lie in memory: with one rank the shard is the unit, with a shared window the parts of
// a unit are adjacent. Nothing is gathered; views point into the arena.
class InPlaceSource final : public TimedSource {
public:
    // arena [plan.whole_elements]. ready(unit, stream) enqueues a wait until the unit's parts are
    // there; may be empty when they are already.
    using Ready = std::function<void(base::UnitId, device::Stream&)>;
    InPlaceSource(const SourceOptions& options, const shard::ArenaPlan& plan, base::ConstSlab arena,
                  device::Device& device, Ready ready);

private:
    base::ConstSlab fetch(Entry& entry, device::Stream& compute) override;

    const shard::ArenaPlan& plan_;
    base::ConstSlab arena_;
    Ready ready_;
    std::vector<bool> seen_;
};

} // namespace foregather::schedule
