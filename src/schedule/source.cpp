// SPDX-License-Identifier: Apache-2.0
// Events around every use, read off once the pass is over.
#include <foregather/schedule/source.hpp>

#include <algorithm>

#include <foregather/base/error.hpp>

namespace foregather::schedule {

// Three passes may be uncollected while the third is enqueued, the chain reaches depth uses
// further, and a gather looks back at the last use of its slot, which may have been a pass ago.
TimedSource::TimedSource(const SourceOptions& options, device::Device& device, int depth,
                         bool moves)
    : device_(device), uses_(options.uses), passes_(options.passes), depth_(depth),
      witness_(depth, static_cast<std::int64_t>(options.uses.size()) * options.passes,
               options.judged_compute_ns, moves),
      spans_(options.timeline_passes),
      ring_(5 * options.uses.size() + static_cast<std::size_t>(depth)), tokens_in_pass_(4) {
    for (Entry& e : ring_) {
        for (Events* events : {&e.gather, &e.compute}) {
            events->begin = device.event();
            events->end = device.event();
        }
    }
}

TimedSource::Entry& TimedSource::entry(std::int64_t use) {
    return ring_[static_cast<std::size_t>(use) % ring_.size()];
}

void TimedSource::begin_pass(bool has_tokens) {
    ++pass_;
    if (use_ != pass_ * static_cast<std::int64_t>(uses_.size())) {
        base::fail("pass " + std::to_string(pass_) + " begins at use " + std::to_string(use_));
    }
    if (use_ - collected_ > 2 * static_cast<std::int64_t>(uses_.size())) {
        base::fail("more than two passes are in flight");
    }
    tokens_in_pass_[static_cast<std::size_t>(pass_) % tokens_in_pass_.size()] = has_tokens;
}

base::ConstSlab TimedSource::acquire(base::UnitId unit, device::Stream& compute) {
    const base::UnitId expected = uses_[static_cast<std::size_t>(use_) % uses_.size()];
    if (acquired_ || unit != expected) {
        base::fail("use " + std::to_string(use_) + " is of unit " + std::to_string(expected) +
                   ", but unit " + std::to_string(unit) + " was acquired" +
                   (acquired_ ? " before the use before it was released" : ""));
    }
    acquired_ = true;
    Entry& e = entry(use_);
    e.record.use = use_;
    const base::ConstSlab weights = fetch(e, compute);
    e.record.pass = pass_;
    e.record.unit = unit;
    e.record.has_tokens = tokens_in_pass_[static_cast<std::size_t>(pass_) % tokens_in_pass_.size()];
    e.record.compute_sequence = next_sequence();
    e.record.compute_issued = device_.now_ns();
    e.compute.begin->record(compute);
    return weights;
}

void TimedSource::release(base::UnitId unit, device::Stream& compute) {
    if (!acquired_ || unit != uses_[static_cast<std::size_t>(use_) % uses_.size()]) {
        base::fail("unit " + std::to_string(unit) + " was released but not acquired");
    }
    entry(use_).compute.end->record(compute);
    acquired_ = false;
    ++use_;
}

void TimedSource::collect_pass() {
    const auto n = static_cast<std::int64_t>(uses_.size());
    const std::int64_t pass = collected_ / n;
    collect_others(pass); // spans come in the order of passes
    for (std::int64_t i = 0; i < n; ++i, ++collected_) {
        collect(entry(collected_));
    }
    if (pass + 1 == passes_) {
        collect_others(passes_);
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
        r.slot_free =
            std::max(e.slot_used != nullptr ? e.slot_used->end->time_ns() : 0, part_there_ns(e));
        spans_.add({SpanKind::gather, r.pass, r.gather_sequence, r.slot, r.unit, r.gather_issued,
                    r.gather_begin, r.gather_end, r.received});
    }
    const Exposed exposed = exposed_part(previous_, r);
    if (exposed.ns() > 0) {
        spans_.add({SpanKind::wait,
                    r.pass,
                    r.compute_sequence,
                    r.slot,
                    r.unit,
                    r.compute_issued,
                    exposed.begin,
                    exposed.end,
                    {0}});
    }
    if (r.has_tokens) {
        spans_.add({SpanKind::compute,
                    r.pass,
                    r.compute_sequence,
                    r.slot,
                    r.unit,
                    r.compute_issued,
                    r.compute_begin,
                    r.compute_end,
                    {0}});
    }
    witness_.add(r);
    previous_ = r;
    r = UseRecord{};
}

InPlaceSource::InPlaceSource(const SourceOptions& options, const shard::ArenaPlan& plan,
                             base::ConstSlab arena, device::Device& device, Ready ready)
    : TimedSource(options, device, 0, false), plan_(plan), arena_(arena), ready_(std::move(ready)),
      seen_(plan.units.size()) {
    if (arena.n < plan.whole_elements) {
        base::fail("an arena of " + std::to_string(arena.n) + " elements does not hold all units");
    }
}

base::ConstSlab InPlaceSource::fetch(Entry& e, device::Stream& compute) {
    const auto unit =
        static_cast<std::size_t>(uses()[static_cast<std::size_t>(e.record.use) % uses().size()]);
    const auto& place = plan_.units[unit];
    if (ready_ && !seen_[unit]) {
        ready_(static_cast<base::UnitId>(unit), compute);
        seen_[unit] = true;
    }
    return {arena_.data + place.in_whole_arena * base::size_of(arena_.type), place.layout.padded(),
            arena_.type};
}

} // namespace foregather::schedule
