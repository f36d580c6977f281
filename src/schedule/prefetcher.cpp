// SPDX-License-Identifier: Apache-2.0
// The executor of a schedule: gathers go to the gather stream ahead of the compute that they hide
// behind.
#include <foregather/base/error.hpp>
#include <foregather/schedule/source.hpp>

namespace foregather::schedule {

Prefetcher::Prefetcher(const SourceOptions& options, const std::vector<shard::UnitSpec>& units,
                       const shard::ArenaPlan& plan, GatherMemory memory,
                       comm::Communicator& communicator, device::Device& device,
                       device::Stream& gather)
    : TimedSource(options, device, Schedule(options.uses, 1, options.depth).depth(), true),
      units_(units), plan_(plan), memory_(std::move(memory)), communicator_(communicator),
      gather_stream_(gather), schedule_(options.uses, options.passes, options.depth),
      slots_(static_cast<std::size_t>(schedule_.slots())) {
    if (memory_.slots.n < schedule_.slots() * plan.largest_unit) {
        base::fail("memory of " + std::to_string(memory_.slots.n) + " elements does not hold " +
                   std::to_string(schedule_.slots()) + " slots of " +
                   std::to_string(plan.largest_unit));
    }
    if (memory_.stages.copy != nullptr) {
        staged_ = std::make_unique<StagedParts>(schedule_, memory_.part, memory_.stages, device);
    }
}

std::int64_t Prefetcher::part_there_ns(const Entry& e) {
    return staged_ ? staged_->arrived_ns(e.part_number) : 0;
}

void Prefetcher::collect_others(std::int64_t pass) {
    if (staged_) {
        staged_->collect(pass, [this](const Span& span) { add_span(span); });
    }
}

base::Slab Prefetcher::slot_memory(int slot, base::Elements n) const {
    return memory_.slots.part(slot * plan_.largest_unit, n);
}

std::int64_t Prefetcher::freed() const {
    std::int64_t used = 0; // what is still there was used and will not be waited for again
    for (const Slot& slot : slots_) {
        used += slot.last_use >= 0 ? 1 : 0;
    }
    return evicted_ + used;
}

base::Bytes Prefetcher::slot_bytes() const {
    return base::bytes_of(plan_.largest_unit, memory_.slots.type);
}

// Takes steps until the compute of this use: the gathers before it are those still missing for the
// uses up to depth ahead. They are enqueued here, so before the compute, whatever the host's pace.
base::ConstSlab Prefetcher::fetch(Entry& e, device::Stream& compute) {
    Step step;
    for (;;) {
        if (!schedule_.next(step)) {
            base::fail("the schedule ended before the run did");
        }
        if (step.kind == Step::Kind::compute) {
            break;
        }
        gather(step);
    }
    Slot& slot = slots_[static_cast<std::size_t>(step.slot)];
    if (slot.unit != step.unit) {
        base::fail("slot " + std::to_string(step.slot) + " does not hold unit " +
                   std::to_string(step.unit));
    }
    if (slot.last_use < 0) { // later uses follow in stream order
        compute.wait(*entry(slot.gathered_for).gather.end);
        ++waited_;
    }
    slot.last_use = step.use;
    e.record.slot = step.slot;
    e.record.gather_sequence = slot.sequence;
    return slot_memory(step.slot, plan_.units[static_cast<std::size_t>(step.unit)].layout.padded());
}

void Prefetcher::gather(const Step& step) {
    Slot& slot = slots_[static_cast<std::size_t>(step.slot)];
    const auto& place = plan_.units[static_cast<std::size_t>(step.unit)];
    Entry& e = entry(step.use);
    e.record.gathered = true;
    e.record.gather_issued = device().now_ns();
    e.slot_used = nullptr;
    if (slot.last_use >= 0) {
        e.slot_used = &entry(slot.last_use).compute;
        gather_stream_.wait(*e.slot_used->end); // freed in stream order, not by the host
        ++evicted_;
    }
    base::ConstSlab part = memory_.part(step.unit);
    if (staged_) {
        e.part_number = staged_->taken();
        part = staged_->take(
            step, pass(), [this] { return next_sequence(); }, gather_stream_);
    }
    own_bytes_ += part.bytes();
    e.gather.begin->record(gather_stream_);
    const base::Slab full = slot_memory(step.slot, place.layout.padded());
    communicator_.all_gather(part, full,
                             "gather of " + units_[static_cast<std::size_t>(step.unit)].name +
                                 " for use " + std::to_string(step.use),
                             gather_stream_);
    e.gather.end->record(gather_stream_);
    if (staged_) {
        staged_->given_back(gather_stream_);
    }
    e.record.received = communicator_.brings(part, full);
    slot = {step.unit, step.use, next_sequence(), -1};
    e.record.gather_sequence = slot.sequence;
    ++issued_;
}

} // namespace foregather::schedule
