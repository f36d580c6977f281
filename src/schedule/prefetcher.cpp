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
    : TimedSource(options, device, true, RangeNames(device, SpanKind::compute, units)),
      units_(units), plan_(plan), memory_(std::move(memory)), communicator_(communicator),
      gather_stream_(gather), slots_(static_cast<std::size_t>(schedule().slots())),
      updates_(units.size()), gather_names_(device, SpanKind::gather, units) {
    if (memory_.slots.n < slots() * plan.largest_unit) {
        base::fail("memory of " + std::to_string(memory_.slots.n) + " elements does not hold " +
                   std::to_string(slots()) + " slots of " + std::to_string(plan.largest_unit));
    }
    for (Update& update : updates_) {
        update.events = {device.event(), device.event()};
    }
    if (memory_.stages.copy != nullptr) {
        staged_ = std::make_unique<StagedParts>(schedule(), memory_.part, memory_.stages, device,
                                                RangeNames(device, SpanKind::copy, units));
    }
    if (options.plan.passes > 0) {
        begin_segment(options.plan.passes, options.plan.step_ends);
    }
}

void Prefetcher::start() {
    evicted_ = freed();
    slots_.assign(slots_.size(), Slot{});
    for (Update& update : updates_) {
        update.steps = 0;
    }
    if (staged_) {
        staged_->begin_segment(schedule());
    }
}

// What was enqueued on the compute stream before the segment's first use may be an optimizer, or
// read the slots.
void Prefetcher::wait_for_segment(const device::Event& began) {
    gather_stream_.wait(began);
    if (staged_) {
        memory_.stages.copy->wait(began);
    }
}

// What was gathered ahead has no use any more. Its stream is drained before the slots' memory goes.
void Prefetcher::drop_ahead() {
    held_.clear();
    for (Slot& slot : slots_) {
        if (slot.unit >= 0 && slot.last_use < 0) {
            ++waited_;
            ++evicted_;
            slot = Slot{};
        }
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
// uses up to depth ahead. They are enqueued here, so before the compute, whatever the host's pace;
// but those that the optimizer must come before, later, when it has been enqueued.
base::ConstSlab Prefetcher::fetch(Entry& e, device::Stream& compute) {
    if (in_segment(e.record.use) == 0) {
        wait_for_segment(*e.began);
    }
    Step step;
    for (;;) {
        if (!schedule().next(step)) {
            base::fail("the schedule ended before the run did");
        }
        if (step.kind == Step::Kind::compute) {
            break;
        }
        if (held_.empty() && may_gather(step)) {
            gather(step);
        } else {
            held_.push_back(step);
        }
    }
    e.record.slot = step.slot;
    e.record.must_ahead = schedule().issued_ahead(step.use);
    e.record.may_ahead = schedule().reach(step.use) - step.use;
    if (step.slot < 0) {
        return {};
    }
    Slot& slot = slots_[static_cast<std::size_t>(step.slot)];
    if (slot.unit != step.unit || slot.optimizer_step != step.optimizer_step) {
        base::fail("slot " + std::to_string(step.slot) + " does not hold unit " +
                   std::to_string(step.unit) + " for use " + std::to_string(in_run(step.use)) +
                   (held_.empty() ? "" : ": the unit has not been updated"));
    }
    if (slot.last_use < 0) { // later uses follow in stream order
        compute.wait(*entry(slot.gathered_for).gather.end);
        ++waited_;
    }
    slot.last_use = e.record.use;
    e.record.gather_sequence = slot.sequence;
    return slot_memory(step.slot, plan_.units[static_cast<std::size_t>(step.unit)].layout.padded());
}

bool Prefetcher::may_gather(const Step& step) const {
    return updates_[static_cast<std::size_t>(step.unit)].steps >= step.optimizer_step;
}

void Prefetcher::take_update(base::UnitId unit, std::int64_t steps, device::Stream& compute) {
    Update& update = updates_[static_cast<std::size_t>(unit)];
    if (update.steps + 1 != steps) {
        base::fail("unit " + std::to_string(unit) + " is updated for optimizer step " +
                   std::to_string(update.steps + 1) + " of the segment at the end of step " +
                   std::to_string(steps));
    }
    update.steps = steps;
    update.events[static_cast<std::size_t>(steps % 2)]->record(compute);
    while (!held_.empty() && may_gather(held_.front())) {
        gather(held_.front());
        held_.pop_front();
    }
    if (staged_) {
        staged_->bring(asked());
    }
}

const device::Event* Prefetcher::weights_of(const Step& step) const {
    if (step.begins_step) {
        const Update& update = updates_[static_cast<std::size_t>(step.unit)];
        return update.events[static_cast<std::size_t>(step.optimizer_step % 2)].get();
    }
    return nullptr;
}

StagedParts::Asked Prefetcher::asked() {
    return {pass(), [this] { return next_sequence(); },
            [this](const Step& step) { return may_gather(step); },
            [this](const Step& step) { return weights_of(step); }};
}

void Prefetcher::gather(const Step& step) {
    const std::int64_t use = in_run(step.use);
    Slot& slot = slots_[static_cast<std::size_t>(step.slot)];
    const auto& place = plan_.units[static_cast<std::size_t>(step.unit)];
    Entry& e = entry(use);
    e.record.gathered = true;
    e.record.gather_issued = device().now_ns();
    e.slot_used = nullptr;
    if (slot.last_use >= 0) {
        e.slot_used = &entry(slot.last_use).compute;
        gather_stream_.wait(*e.slot_used->end); // freed in stream order, not by the host
        ++evicted_;
    }
    e.updated = weights_of(step);
    if (e.updated != nullptr) {
        gather_stream_.wait(*e.updated);
    }
    base::ConstSlab part = memory_.part(step.unit);
    if (staged_) {
        e.part_number = staged_->taken();
        part = staged_->take(step, asked(), gather_stream_);
    }
    own_bytes_ += part.bytes();
    const device::Range range(device(), gather_names_.of(step.unit), use);
    e.gather.begin->record(gather_stream_);
    const base::Slab full = slot_memory(step.slot, place.layout.padded());
    const std::string& unit = units_[static_cast<std::size_t>(step.unit)].name;
    communicator_.all_gather(part, full,
                             name_of(SpanKind::gather, unit) + " for use " + std::to_string(use),
                             gather_stream_);
    e.gather.end->record(gather_stream_);
    if (staged_) {
        staged_->given_back(gather_stream_);
    }
    e.record.received = communicator_.brings(part, full);
    slot = {step.unit, step.optimizer_step, use, next_sequence(), -1};
    e.record.gather_sequence = slot.sequence;
    ++issued_;
}

} // namespace foregather::schedule
