// SPDX-License-Identifier: Apache-2.0
// The three sources of weights: gathered by a schedule, resident on one rank, or read in place from
// a window that ranks of a node share. All keep the same record of what they did.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
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
    Plan plan;
    std::int64_t judged_compute_ns = 0; // shortest compute that the verdict judges
    std::int64_t timeline_passes = 0;   // spans kept; 0 = none
};

// Times every use with events and feeds the witness. At most two passes may be uncollected.
//
// A run may be cut into segments: each is a plan of its own, of the same passes and depths.
class TimedSource : public shard::WeightSource {
public:
    // A use that needs no weights is given none: an empty slab.
    base::ConstSlab acquire(base::UnitId unit, device::Stream& compute) final;
    void release(base::UnitId unit, device::Stream& compute) final;

    // The next `passes` passes; step_ends as in Plan, counted from here. All passes of the segment
    // before must be collected, and its optimizer be enqueued. Numbers of passes and uses, figures
    // and spans go on; no slot holds anything. The first acquire() makes gathers wait for all that
    // was enqueued on `compute` before. The constructor begins a segment if its plan has passes.
    void begin_segment(std::int64_t passes, std::vector<std::int64_t> step_ends = {});
    // After the last use of an optimizer step: the optimizer of the unit, or nothing where the step
    // is left out, has been enqueued on `compute`, which is the stream of the uses. Once for each
    // unit that any use is of, in the order of first use, the same on every rank; passes of the
    // step before that must be collected. Lets the gathers go that wait for it.
    void updated(base::UnitId unit, device::Stream& compute);

    // Before the uses of a pass; has_tokens: will this rank compute anything in it?
    void begin_pass(bool has_tokens);
    // After the pass's work is done on the compute stream, or it throws: reads its events. In order
    // of passes. Does not block.
    void collect_pass();

    // The segment ends here, between passes, although more were planned; all are collected. Nothing
    // more is gathered, and what was gathered ahead is not used. No other segment may follow.
    void stop_early();

    // What the streams are at, or before; nothing where all that is enqueued is done. Does not
    // block. Called by the thread that enqueues.
    std::optional<Underway> underway() const;

    PrefetchFigures figures(Direction direction = Direction::forward) const {
        return witness_.figures(direction);
    }
    std::vector<Span> spans() const { return spans_.all(); }
    int depth(Direction direction = Direction::forward) const {
        return moves_ ? schedule_.depth(direction) : 0;
    }

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
        const device::Event* updated = nullptr; // what else the gather waited for
        // Of the first use of an optimizer step or segment: compute has come to it.
        const device::Event* began = nullptr;
        std::int64_t part_number = 0; // of the copy that brought this gather's part
    };

    // moves: are weights gathered? names: of computes. Begins no segment.
    TimedSource(const SourceOptions& options, device::Device& device, bool moves, RangeNames names);

    // A segment begins: schedule() is at its start.
    virtual void start() = 0;
    // Makes the weights of the use's unit available on `compute`, and fills the record's gather
    // part.
    virtual base::ConstSlab fetch(Entry& entry, device::Stream& compute) = 0;
    // steps: optimizer steps of the segment whose passes are enqueued.
    virtual void take_update(base::UnitId unit, std::int64_t steps, device::Stream& compute) = 0;

    // When what a gather that is done read was there; 0: always.
    virtual std::int64_t part_there_ns(const Entry&) { return 0; }
    virtual void drop_ahead() {}
    // Spans beside those of uses that were enqueued before `pass`: to be added.
    virtual void collect_others(std::int64_t /*pass*/) {}

    void add_span(const Span& span) { spans_.add(span); }
    std::int64_t pass() const { return pass_; }
    Entry& entry(std::int64_t use); // by its number in the run
    std::int64_t next_sequence() { return sequence_++; }
    device::Device& device() { return device_; }
    Schedule& schedule() { return schedule_; } // of the segment
    const Schedule& schedule() const { return schedule_; }
    std::int64_t in_segment(std::int64_t use) const { return use - segment_begin_; }
    std::int64_t in_run(std::int64_t use) const { return use + segment_begin_; }

    std::int64_t issued_ = 0, waited_ = 0;
    base::Bytes own_bytes_;

private:
    void note_begin(Entry& entry, device::Stream& compute);
    void collect(Entry& entry);
    void add_spans(const UseRecord& record);

    device::Device& device_;
    Plan plan_;
    Schedule schedule_;
    bool moves_;
    Witness witness_;
    SpanStore spans_;
    RangeNames names_; // of computes
    std::vector<Entry> ring_;
    std::vector<bool> tokens_in_pass_; // of the passes in the ring
    // By turns: of the passes that may be uncollected.
    std::array<std::unique_ptr<device::Event>, 4> began_;
    std::size_t steps_begun_ = 0; // optimizer steps and segments
    std::int64_t sequence_ = 1;
    std::int64_t use_ = 0;                             // next to acquire
    std::int64_t pass_ = -1;                           // of that use
    std::int64_t collected_ = 0;                       // uses read off
    std::int64_t segment_begin_ = 0, segment_end_ = 0; // uses
    UseRecord previous_;                               // the last one read off
    bool acquired_ = false;
};

// Runs a Schedule: gathers on a stream of its own, into depth + 1 slots. This is where the gather
// of use i + depth is enqueued, before compute i. Those that need what the optimizer is to write
// are held back until it has been enqueued for their unit.
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

    int slots() const override { return schedule().slots(); }
    base::Bytes slot_bytes() const override;
    std::int64_t freed() const override;

private:
    struct Slot {
        base::UnitId unit = -1;
        std::int64_t optimizer_step = 0;
        std::int64_t gathered_for = -1; // the use whose entry holds the gather's events
        std::int64_t sequence = 0;
        std::int64_t last_use = -1; // the latest use that computed from it
    };
    struct Update { // of a unit, in the segment
        std::int64_t steps = 0;
        // Of the optimizer, by turns: one may be read when the other is recorded.
        std::array<std::unique_ptr<device::Event>, 2> events;
    };

    void start() override;
    base::ConstSlab fetch(Entry& entry, device::Stream& compute) override;
    void take_update(base::UnitId unit, std::int64_t steps, device::Stream& compute) override;
    std::int64_t part_there_ns(const Entry& entry) override;
    void drop_ahead() override;
    void collect_others(std::int64_t pass) override;
    void wait_for_segment(const device::Event& began);
    bool may_gather(const Step& step) const;
    void gather(const Step& step);
    // What a gather must wait for beside its slot, or nullptr.
    const device::Event* weights_of(const Step& step) const;
    StagedParts::Asked asked();
    base::Slab slot_memory(int slot, base::Elements n) const;

    const std::vector<shard::UnitSpec>& units_;
    const shard::ArenaPlan& plan_;
    GatherMemory memory_;
    comm::Communicator& communicator_;
    device::Stream& gather_stream_;
    std::vector<Slot> slots_;
    std::vector<Update> updates_;         // by unit
    std::deque<Step> held_;               // gathers that are due but for the optimizer
    std::unique_ptr<StagedParts> staged_; // where there are stages
    RangeNames gather_names_;             // for a profiler
    std::int64_t evicted_ = 0;
};

// Whole units lie in memory: with one rank the shard is the unit, with a shared window the parts of
// a unit are adjacent. Nothing is gathered; views point into the arena.
class InPlaceSource final : public TimedSource {
public:
    // arena [plan.whole_elements]. ready(unit, stream) enqueues a wait until the unit's parts are
    // there: at the unit's first use in a segment, and after each updated(). updated(unit, stream)
    // is called by updated(), to tell others once the stream has come so far. Both may be empty.
    // names: of computes, for a profiler.
    using Ready = std::function<void(base::UnitId, device::Stream&)>;
    using Updated = std::function<void(base::UnitId, device::Stream&)>;
    InPlaceSource(const SourceOptions& options, const shard::ArenaPlan& plan, base::ConstSlab arena,
                  device::Device& device, Ready ready, Updated updated = {}, RangeNames names = {});

private:
    void start() override;
    base::ConstSlab fetch(Entry& entry, device::Stream& compute) override;
    void take_update(base::UnitId unit, std::int64_t steps, device::Stream& compute) override;

    const shard::ArenaPlan& plan_;
    base::ConstSlab arena_;
    Ready ready_;
    Updated updated_;
    std::vector<bool> seen_;
};

} // namespace foregather::schedule
