// SPDX-License-Identifier: Apache-2.0
// Events around every use, read off once the pass is over.
#include <foregather/schedule/source.hpp>

#include <algorithm>

#include <foregather/base/error.hpp>

namespace foregather::schedule {

namespace {

Plan empty(Plan plan) {
    plan.passes = 0;
    plan.step_ends.clear();
    return plan;
}

} // namespace

// Three passes may be uncollected while the third is enqueued, the chain reaches depth uses
// further, and a gather looks back at the last use of its slot, which may have been a pass ago.
TimedSource::TimedSource(const SourceOptions& options, device::Device& device, bool moves,
                         RangeNames names)
    : device_(device), plan_(options.plan), schedule_(empty(plan_)), moves_(moves),
      witness_({depth(Direction::forward), depth(Direction::backward)}, options.judged_compute_ns,
               moves),
      spans_(options.timeline_passes), names_(std::move(names)),
      ring_(5 * plan_.pass.size() + static_cast<std::size_t>(schedule_.slots())),
      tokens_in_pass_(4) {
    for (Entry& e : ring_) {
        for (Events* events : {&e.gather, &e.compute}) {
            events->begin = device.event();
            events->end = device.event();
        }
    }
    for (auto& event : began_) {
        event = device.event();
    }
}

void TimedSource::begin_segment(std::int64_t passes, std::vector<std::int64_t> step_ends) {
    if (use_ != segment_end_ || collected_ != use_) {
        base::fail("a segment begins at use " + std::to_string(use_) + " with " +
                   std::to_string(collected_) + " collected, but the one before ends at use " +
                   std::to_string(segment_end_));
    }
    plan_.passes = passes;
    plan_.step_ends = std::move(step_ends);
    schedule_ = Schedule(plan_);
    segment_begin_ = use_;
    segment_end_ = use_ + schedule_.uses();
    witness_.begin_segment(schedule_.uses());
    start();
}

void TimedSource::updated(base::UnitId unit, device::Stream& compute) {
    const std::int64_t last = in_segment(use_) - 1;
    if (acquired_ || last < 0 || !schedule_.ends_step(last)) {
        base::fail("unit " + std::to_string(unit) + " is updated before use " +
                   std::to_string(use_) + ", where no optimizer step ends");
    }
    take_update(unit, schedule_.optimizer_step_of(last) + 1, compute);
}

void TimedSource::stop_early() {
    if (collected_ != use_) {
        base::fail("a segment is stopped at use " + std::to_string(use_) + " with " +
                   std::to_string(collected_) + " collected");
    }
    drop_ahead();
    segment_end_ = use_;
}

TimedSource::Entry& TimedSource::entry(std::int64_t use) {
    return ring_[static_cast<std::size_t>(use) % ring_.size()];
}

void TimedSource::begin_pass(bool has_tokens) {
    const std::int64_t n = schedule_.uses_per_pass();
    ++pass_;
    if (use_ != pass_ * n) {
        base::fail("pass " + std::to_string(pass_) + " begins at use " + std::to_string(use_));
    }
    if (use_ - collected_ > 2 * n) {
        base::fail("more than two passes are in flight");
    }
    tokens_in_pass_[static_cast<std::size_t>(pass_) % tokens_in_pass_.size()] = has_tokens;
}

base::ConstSlab TimedSource::acquire(base::UnitId unit, device::Stream& compute) {
    const Use& expected = schedule_.use(use_);
    if (acquired_ || unit != expected.unit) {
        base::fail("use " + std::to_string(use_) + " is of unit " + std::to_string(expected.unit) +
                   ", but unit " + std::to_string(unit) + " was acquired" +
                   (acquired_ ? " before the use before it was released" : ""));
    }
    if (use_ >= segment_end_) {
        base::fail("use " + std::to_string(use_) + " is beyond the last pass");
    }
    acquired_ = true;
    Entry& e = entry(use_);
    e.record.use = use_;
    e.record.direction = expected.direction;
    note_begin(e, compute);
    const base::ConstSlab weights = fetch(e, compute);
    e.record.pass = pass_;
    e.record.unit = unit;
    e.record.has_tokens = tokens_in_pass_[static_cast<std::size_t>(pass_) % tokens_in_pass_.size()];
    e.record.compute_sequence = next_sequence();
    e.record.compute_issued = device_.now_ns();
    device_.begin_range(names_.of(unit), use_);
    e.compute.begin->record(compute);
    return weights;
}

void TimedSource::note_begin(Entry& e, device::Stream& compute) {
    const std::int64_t use = in_segment(e.record.use);
    e.began = nullptr;
    if (use == 0 || schedule_.ends_step(use - 1)) {
        device::Event& began = *began_[steps_begun_++ % began_.size()];
        began.record(compute);
        e.began = &began;
    }
}

void TimedSource::release(base::UnitId unit, device::Stream& compute) {
    if (!acquired_ || unit != schedule_.unit_of(use_)) {
        base::fail("unit " + std::to_string(unit) + " was released but not acquired");
    }
    entry(use_).compute.end->record(compute);
    device_.end_range();
    acquired_ = false;
    ++use_;
}

std::optional<Underway> TimedSource::underway() const {
    for (std::int64_t use = collected_; use < use_; ++use) {
        const Entry& e = ring_[static_cast<std::size_t>(use) % ring_.size()];
        const UseRecord& r = e.record;
        if (e.compute.end->done()) {
            continue;
        }
        if (r.gathered && !e.gather.end->done()) {
            return Underway{SpanKind::gather, r.unit, r.pass, r.direction, e.gather.begin->done()};
        }
        return Underway{SpanKind::compute, r.unit, r.pass, r.direction, e.compute.begin->done()};
    }
    return {};
}

void TimedSource::collect_pass() {
    const std::int64_t n = schedule_.uses_per_pass();
    const std::int64_t pass = collected_ / n;
    collect_others(pass); // spans come in the order of passes
    for (std::int64_t i = 0; i < n; ++i, ++collected_) {
        collect(entry(collected_));
    }
    if (collected_ == segment_end_) {
        collect_others(pass + 1);
    }
}

// Events are not waited for: the computes are done, and each gather was waited for by one of them.
void TimedSource::collect(Entry& e) {
    UseRecord& r = e.record;
    r.compute_begin = e.compute.begin->time_ns();
    r.compute_end = e.compute.end->time_ns();
    if (r.gathered) {
        r.gather_begin = e.gather.begin->time_ns();
        r.gather_end = e.gather.end->time_ns();
        r.slot_free = std::max({e.slot_used != nullptr ? e.slot_used->end->time_ns() : 0,
                                e.updated != nullptr ? e.updated->time_ns() : 0, part_there_ns(e)});
    }
    // Before the run's first use nothing was to be done.
    r.compute_free = e.began != nullptr && r.use > 0 ? e.began->time_ns() : 0;
    add_spans(r);
    witness_.add(r);
    previous_ = r;
    r = UseRecord{};
}

void TimedSource::add_spans(const UseRecord& r) {
    Span span;
    span.pass = r.pass;
    span.slot = r.slot;
    span.unit = r.unit;
    span.direction = r.direction;
    const auto add = [&](SpanKind kind, std::int64_t sequence, std::int64_t issued,
                         std::int64_t begin, std::int64_t end) {
        span.kind = kind;
        span.sequence = sequence;
        span.issued_ns = issued;
        span.begin_ns = begin;
        span.end_ns = end;
        span.received = kind == SpanKind::gather ? r.received : base::Bytes{0};
        spans_.add(span);
    };
    if (r.gathered) {
        add(SpanKind::gather, r.gather_sequence, r.gather_issued, r.gather_begin, r.gather_end);
    }
    if (const Exposed exposed = exposed_part(previous_, r); exposed.ns() > 0) {
        add(SpanKind::wait, r.compute_sequence, r.compute_issued, exposed.begin, exposed.end);
    }
    if (r.has_tokens) {
        add(SpanKind::compute, r.compute_sequence, r.compute_issued, r.compute_begin,
            r.compute_end);
    }
}

InPlaceSource::InPlaceSource(const SourceOptions& options, const shard::ArenaPlan& plan,
                             base::ConstSlab arena, device::Device& device, Ready ready,
                             Updated updated, RangeNames names)
    : TimedSource(options, device, false, std::move(names)), plan_(plan), arena_(arena),
      ready_(std::move(ready)), updated_(std::move(updated)), seen_(plan.units.size()) {
    if (arena.n < plan.whole_elements) {
        base::fail("an arena of " + std::to_string(arena.n) + " elements does not hold all units");
    }
    if (options.plan.passes > 0) {
        begin_segment(options.plan.passes, options.plan.step_ends);
    }
}

void InPlaceSource::start() { seen_.assign(seen_.size(), false); }

base::ConstSlab InPlaceSource::fetch(Entry& e, device::Stream& compute) {
    const Use& use = schedule().use(in_segment(e.record.use));
    if (!use.needs_weights) {
        return {};
    }
    const auto unit = static_cast<std::size_t>(use.unit);
    const auto& place = plan_.units[unit];
    if (ready_ && !seen_[unit]) {
        ready_(use.unit, compute);
        seen_[unit] = true;
    }
    return {arena_.data + place.in_whole_arena * base::size_of(arena_.type), place.layout.padded(),
            arena_.type};
}

void InPlaceSource::take_update(base::UnitId unit, std::int64_t /*steps*/,
                                device::Stream& compute) {
    if (updated_) {
        updated_(unit, compute);
    }
    seen_[static_cast<std::size_t>(unit)] = false;
}

} // namespace foregather::schedule
