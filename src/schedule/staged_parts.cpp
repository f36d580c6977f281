// SPDX-License-Identifier: Apache-2.0
// Copies one gather ahead, by a second place in the same schedule.
#include <foregather/schedule/staged_parts.hpp>

#include <utility>

#include <foregather/base/error.hpp>

namespace foregather::schedule {

// Copies of four passes may be waiting to be read off: of two in flight, of the one being enqueued,
// and of the one before, whose gathers have not all been collected.
StagedParts::StagedParts(const Schedule& schedule, Part part, const Stages& stages,
                         device::Device& device, RangeNames names)
    : ahead_(schedule), part_(std::move(part)), stages_(stages), device_(device),
      names_(std::move(names)), copies_(static_cast<std::size_t>(4 * ahead_.uses_per_pass() + 4)) {
    for (Copy& copy : copies_) {
        copy.begin = device.event();
        copy.end = device.event();
    }
    for (auto& event : stage_free_) {
        event = device.event();
    }
}

base::Slab StagedParts::stage(std::int64_t number, base::Elements n) const {
    const base::Elements half = stages_.memory.n / 2;
    if (n > half) {
        base::fail("a part of " + std::to_string(n) + " elements does not fit a stage of " +
                   std::to_string(half));
    }
    return stages_.memory.part(number % 2 * half, n);
}

void StagedParts::begin_segment(const Schedule& schedule) {
    ahead_ = schedule;
    look_for_next();
}

void StagedParts::look_for_next() {
    do {
        more_ = ahead_.next(next_);
    } while (more_ && next_.kind != Step::Kind::gather);
}

base::ConstSlab StagedParts::take(const Step& step, const Asked& asked, device::Stream& gather) {
    bring(asked);
    Copy& mine = copy(taken_);
    if (brought_ <= taken_ || mine.span.unit != step.unit) {
        base::fail("the part of unit " + std::to_string(step.unit) + " was not brought for use " +
                   std::to_string(step.use));
    }
    gather.wait(*mine.end);
    return stage(taken_, part_(step.unit).n);
}

// Not further ahead: a stage is free only when the gather two before has been enqueued.
void StagedParts::bring(const Asked& asked) {
    while (brought_ < taken_ + 2 && more_ && asked.may_read(next_)) {
        bring_next(asked);
        look_for_next();
    }
}

void StagedParts::bring_next(const Asked& asked) {
    const Step& step = next_;
    const base::ConstSlab from = part_(step.unit);
    const base::Slab to = stage(brought_, from.n);
    Copy& c = copy(brought_);
    c.span = {SpanKind::copy,
              asked.pass,
              asked.next_sequence(),
              static_cast<int>(brought_ % 2),
              step.unit,
              device_.now_ns(),
              0,
              0,
              from.bytes(),
              step.direction};
    c.read = false;
    device::Stream& stream = *stages_.copy;
    stream.wait(*stage_free_[static_cast<std::size_t>(brought_ % 2)]);
    if (const device::Event* written = asked.written(step)) {
        stream.wait(*written);
    }
    const device::Range range(device_, names_.of(step.unit), brought_);
    c.begin->record(stream);
    const auto bytes = static_cast<std::size_t>(from.bytes().count);
    device_.copy_in(base::View<const std::byte>(from.data, bytes),
                    base::View<std::byte>(to.data, bytes), stream);
    c.end->record(stream);
    ++brought_;
}

void StagedParts::given_back(device::Stream& gather) {
    stage_free_[static_cast<std::size_t>(taken_ % 2)]->record(gather);
    ++taken_;
}

void StagedParts::read(Copy& c) {
    if (!c.read) {
        c.span.begin_ns = c.begin->time_ns();
        c.span.end_ns = c.end->time_ns();
        c.read = true;
    }
}

std::int64_t StagedParts::arrived_ns(std::int64_t number) {
    read(copy(number));
    return copy(number).span.end_ns;
}

void StagedParts::collect(std::int64_t pass, const std::function<void(const Span&)>& add) {
    for (; collected_ < brought_ && copy(collected_).span.pass < pass; ++collected_) {
        read(copy(collected_));
        add(copy(collected_).span);
    }
}

} // namespace foregather::schedule
