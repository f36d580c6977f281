// SPDX-License-Identifier: Apache-2.0
// What happens to a gradient, in which order and on which stream. What it cost is read off in
// reduce_figures.cpp.
#include <foregather/schedule/gradient_reducer.hpp>

#include <foregather/base/error.hpp>

namespace foregather::schedule {
namespace {

void check_room(base::Elements there, base::Elements needed, const std::string& what) {
    if (there < needed) {
        base::fail("gradients: " + std::to_string(there) + " elements do not hold " + what + ", " +
                   std::to_string(needed));
    }
}

} // namespace

GradientReducer::GradientReducer(const std::vector<shard::UnitSpec>& units,
                                 const shard::ArenaPlan& plan, Memory memory, Arithmetic arithmetic,
                                 Groups groups, device::Device& device, device::Stream& reduce,
                                 std::int64_t timeline_passes)
    : units_(units), arena_(plan), memory_(memory), arithmetic_(std::move(arithmetic)),
      groups_(groups), device_(device), reduce_(reduce), spans_(timeline_passes),
      names_(device, SpanKind::reduce, units) {
    check_memory();
}

void GradientReducer::check_memory() const {
    check_room(std::ssize(memory_.slots), 2 * arena_.largest_unit, "two slots");
    check_room(std::ssize(memory_.accumulator), arena_.shard_elements, "this rank's sums");
    if (groups_.shard != nullptr) {
        check_room(memory_.part.n, arena_.largest_part, "a reduced part");
        const base::DType sent = rounds() ? memory_.rounded.type : base::DType::f32;
        if (memory_.part.type != sent) {
            base::fail(std::string("gradients: ") + base::name_of(sent) +
                       " is reduced into a part of " + base::name_of(memory_.part.type));
        }
    }
    if (rounds()) {
        check_room(memory_.rounded.n, arena_.largest_unit, "a rounded unit");
    }
}

void GradientReducer::begin_segment(const Plan& plan) {
    if (number_ != segment_end_ || read_ != number_) {
        base::fail("gradients: a segment begins at gradient " + std::to_string(number_) + " with " +
                   std::to_string(read_) + " collected, but the one before ends at " +
                   std::to_string(segment_end_));
    }
    schedule_.emplace(plan);
    std::vector<std::int64_t> positions;
    for (std::int64_t use = 0; use < schedule_->uses_per_pass(); ++use) {
        if (schedule_->use(use).direction == Direction::backward) {
            positions.push_back(use);
        }
    }
    if (positions.empty() || (!positions_.empty() && positions.size() != positions_.size())) {
        base::fail("gradients: " + std::to_string(positions.size()) + " uses of a pass have one");
    }
    positions_ = std::move(positions);
    make_rings();
    segment_begin_ = number_;
    segment_end_ = number_ + plan.passes * per_pass();
    latest_in_slot_ = {-1, -1};
}

// Three passes may be uncollected, and the last reductions of the one before be left to read.
void GradientReducer::make_rings() {
    if (!ring_.empty()) {
        return;
    }
    const auto make = [this](auto&... events) { ((events = device_.event()), ...); };
    ring_.resize(4 * positions_.size() + 2);
    for (Entry& e : ring_) {
        make(e.computed, e.freed, e.wait.begin, e.wait.end, e.reduce.begin, e.reduce.end);
    }
    step_waits_.resize(4);
    for (StepWait& w : step_waits_) {
        make(w.drained, w.wait.begin, w.wait.end);
    }
}

std::int64_t GradientReducer::use_of(std::int64_t number) const {
    const std::int64_t n = number - segment_begin_;
    return n / per_pass() * schedule_->uses_per_pass() +
           positions_[static_cast<std::size_t>(n % per_pass())];
}

base::View<float> GradientReducer::begin(base::UnitId unit, device::Stream& compute) {
    if (begun_ || number_ >= segment_end_ || schedule_->unit_of(use_of(number_)) != unit) {
        base::fail("gradient " + std::to_string(number_) +
                   (number_ >= segment_end_
                        ? " is beyond the last pass"
                        : " is of unit " + std::to_string(schedule_->unit_of(use_of(number_))) +
                              ", but that of unit " + std::to_string(unit) + " was begun") +
                   (begun_ ? " before the one before it was ended" : ""));
    }
    if (number_ - read_ >= std::ssize(ring_)) {
        base::fail("gradients: more than three passes are uncollected");
    }
    begun_ = true;
    Entry& e = entry(number_);
    e.turn = schedule_->gradient_of(use_of(number_));
    e.span = Span{};
    e.span.kind = SpanKind::reduce;
    e.span.pass = pass_of(number_);
    e.span.sequence = number_;
    e.span.slot = e.turn.slot;
    e.span.unit = unit;
    e.span.direction = Direction::backward;
    e.before = nullptr;
    e.in_place = groups_.shard == nullptr && e.turn.begins;
    if (e.in_place) {
        e.span.slot = -1;
        return gradient_of(unit);
    }
    wait_for_slot(e, compute);
    return slot_of(e);
}

// What has been read off is done: nothing to wait for.
void GradientReducer::wait_for_slot(Entry& e, device::Stream& compute) {
    std::int64_t& latest = latest_in_slot_[static_cast<std::size_t>(e.turn.slot)];
    if (latest >= read_) {
        e.before = &entry(latest);
        e.wait_issued_ns = device_.now_ns();
        e.wait.begin->record(compute);
        compute.wait(*e.before->freed);
        e.wait.end->record(compute);
    }
    latest = number_;
}

base::View<float> GradientReducer::slot_of(const Entry& e) const {
    const base::Elements n = arena_.units[static_cast<std::size_t>(e.span.unit)].layout.padded();
    return memory_.slots.subspan(static_cast<std::size_t>(e.turn.slot * arena_.largest_unit),
                                 static_cast<std::size_t>(n));
}

base::View<float> GradientReducer::gradient_of(base::UnitId unit) const {
    const auto& place = arena_.units[static_cast<std::size_t>(unit)];
    return memory_.accumulator.subspan(static_cast<std::size_t>(place.in_shard_arena),
                                       static_cast<std::size_t>(place.layout.per_rank()));
}

void GradientReducer::end(base::UnitId unit, device::Stream& compute) {
    Entry& e = entry(number_);
    if (!begun_ || unit != e.span.unit) {
        base::fail("the gradient of unit " + std::to_string(unit) + " was ended but not begun");
    }
    begun_ = false;
    ++number_;
    e.to_replicas = e.turn.completes && groups_.replicas != nullptr;
    e.reduced = !e.in_place || e.to_replicas;
    if (!e.reduced) {
        return;
    }
    e.span.issued_ns = device_.now_ns();
    e.computed->record(compute);
    reduce_.wait(*e.computed);
    const device::Range range(device_, names_.of(unit), e.span.pass);
    e.reduce.begin->record(reduce_);
    if (groups_.shard != nullptr) {
        reduce_scatter(e);
    } else if (!e.in_place) {
        add_to_accumulator(e);
    }
    if (e.to_replicas) {
        reduce_over_replicas(e);
    }
    e.reduce.end->record(reduce_);
}

void GradientReducer::add_to_accumulator(Entry& e) {
    arithmetic_.add(base::slab(slot_of(e)), gradient_of(e.span.unit), reduce_);
    e.freed->record(reduce_);
}

// The slot is free as soon as its values have been sent, or rounded.
void GradientReducer::reduce_scatter(Entry& e) {
    const base::View<float> sum = gradient_of(e.span.unit);
    base::Slab full = base::slab(slot_of(e));
    if (rounds()) {
        const base::Slab rounded = memory_.rounded.part(0, full.n);
        arithmetic_.convert(slot_of(e), rounded, reduce_);
        e.freed->record(reduce_);
        full = rounded;
    }
    const bool directly = e.turn.begins && !rounds();
    const base::Slab part = directly ? base::slab(sum) : memory_.part.part(0, std::ssize(sum));
    groups_.shard->reduce_scatter(full, part, what(e, ""), reduce_);
    e.span.received += full.bytes() - part.bytes();
    if (!rounds()) {
        e.freed->record(reduce_);
    }
    if (directly) {
        return;
    }
    if (e.turn.begins) {
        arithmetic_.clear(sum, reduce_);
    }
    arithmetic_.add(part, sum, reduce_);
}

void GradientReducer::reduce_over_replicas(Entry& e) {
    const base::Slab sum = base::slab(gradient_of(e.span.unit));
    groups_.replicas->all_reduce(sum, what(e, " over replicas"), reduce_);
    // As a reduce-scatter and an all-gather bring it.
    const std::int64_t share = sum.bytes().count / groups_.replicas->size();
    e.span.received += 2 * base::Bytes{sum.bytes().count - share};
}

std::optional<Underway> GradientReducer::underway() const {
    for (std::int64_t number = read_; number < number_; ++number) {
        const Entry& e = ring_[static_cast<std::size_t>(number) % ring_.size()];
        if (e.reduced && !e.reduce.end->done()) {
            return Underway{SpanKind::reduce, e.span.unit, e.span.pass, e.span.direction,
                            e.reduce.begin->done()};
        }
    }
    return {};
}

std::string GradientReducer::what(const Entry& e, const char* over) const {
    const std::string& unit = units_[static_cast<std::size_t>(e.span.unit)].name;
    return name_of(SpanKind::reduce, unit) + over + ", pass " + std::to_string(e.span.pass);
}

void GradientReducer::wait_reduced(device::Stream& compute) {
    const std::int64_t n = number_ - segment_begin_;
    if (begun_ || n == 0 || n % per_pass() != 0 ||
        !schedule_->ends_step(n / per_pass() * schedule_->uses_per_pass() - 1)) {
        base::fail("gradients are waited for before gradient " + std::to_string(number_) +
                   ", where no optimizer step ends");
    }
    StepWait& w = step_wait(pass_of(number_ - 1));
    w.enqueued = true;
    w.issued_ns = device_.now_ns();
    w.drained->record(reduce_);
    w.wait.begin->record(compute);
    compute.wait(*w.drained);
    w.wait.end->record(compute);
}

} // namespace foregather::schedule
