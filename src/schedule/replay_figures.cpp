// SPDX-License-Identifier: Apache-2.0
// What a replay took, read off as the executor's figures are: by its Witness, and as its reducer
// counts waits for reductions.
#include <cmath>

#include <foregather/schedule/witness.hpp>

#include "play.hpp"

namespace foregather::schedule {
namespace {

constexpr std::array<Direction, 2> both = {Direction::forward, Direction::backward};

std::int64_t ns(double seconds) { return std::llround(seconds * 1e9); }

} // namespace

void Play::complete(Played& use) const {
    UseRecord& r = use.record;
    if (r.gathered) {
        r.gather_issued = ns(fluid_.end(use.decided));
        r.gather_begin = ns(fluid_.begin(use.gather));
        r.gather_end = ns(fluid_.end(use.gather));
        r.slot_free = ns(std::max(fluid_.end(use.slot_used), fluid_.end(use.updated)));
    }
    r.compute_free = ns(fluid_.end(use.free));
    r.compute_begin = ns(fluid_.begin(use.acquired));
    r.compute_end = ns(fluid_.end(use.computed));
}

double Play::length(std::int64_t block) const {
    const auto end = [this](std::int64_t b) {
        return b < 0 ? 0.0 : fluid_.end(block_ends_[static_cast<std::size_t>(b)]);
    };
    return end(block) - end(block - 1);
}

Replayed Play::of(std::int64_t block, bool with_spans) const {
    Witness witness({schedule_.depth(Direction::forward), schedule_.depth(Direction::backward)}, 0,
                    true);
    witness.begin_segment(schedule_.uses());
    std::array<PrefetchFigures, 2> before;
    const std::int64_t per_block = uses_ * plan_.passes;
    for (std::int64_t use = 0; use < (block + 1) * per_block; ++use) {
        if (use == block * per_block) {
            before = {witness.figures(both[0]), witness.figures(both[1])};
        }
        witness.add(played_[static_cast<std::size_t>(use)].record);
    }
    Replayed result;
    for (const Direction d : both) {
        const PrefetchFigures& was = before[static_cast<std::size_t>(d)];
        const PrefetchFigures is = witness.figures(d);
        result.directions[static_cast<std::size_t>(d)] = {
            is.compute_s - was.compute_s, is.gather_s - was.gather_s, is.exposed_s - was.exposed_s,
            is.overlapped_s - was.overlapped_s};
    }
    add_reductions(block, result);
    result.step = length(block);
    const auto steps =
        static_cast<double>(plan_.step_ends.empty() ? plan_.passes : std::ssize(plan_.step_ends));
    for (ReplayedDirection& d : result.directions) {
        for (double* value : {&d.compute, &d.gather, &d.exposed, &d.overlapped}) {
            *value /= steps;
        }
    }
    for (double* value :
         {&result.step, &result.reduce, &result.exposed_reduce, &result.optimizer}) {
        *value /= steps;
    }
    if (with_spans) {
        result.spans = spans();
    }
    return result;
}

void Play::add_reductions(std::int64_t block, Replayed& sums) const {
    for (const Reduction& r : reductions_) {
        if (block_of(r.pass) == block) {
            sums.reduce += fluid_.end(r.end()) - fluid_.begin(r.scatter);
        }
    }
    const std::int64_t per_block = uses_ * plan_.passes;
    for (std::int64_t use = block * per_block; use < (block + 1) * per_block; ++use) {
        const Played& u = played_[static_cast<std::size_t>(use)];
        sums.exposed_reduce += fluid_.begin(u.computed) - fluid_.begin(u.acquired);
    }
    for (const StepEnd& end : step_ends_) {
        if (block_of(end.pass) == block) {
            sums.exposed_reduce += fluid_.end(end.drained) - fluid_.end(end.last_compute);
            sums.optimizer += fluid_.end(end.end) - fluid_.begin(end.first_update);
        }
    }
}

// Those of uses in the order of uses, then those of reductions: each has its own sequence, as the
// executor's have.
std::vector<Span> Play::spans() const {
    std::vector<Span> all;
    for (std::int64_t use = 0; use < std::ssize(played_); ++use) {
        add_use_spans(use, all);
    }
    for (std::size_t i = 0; i < reductions_.size(); ++i) {
        const Reduction& r = reductions_[i];
        const Span span{SpanKind::reduce,
                        r.pass,
                        static_cast<std::int64_t>(i),
                        r.gradient.slot,
                        r.unit,
                        ns(fluid_.begin(r.scatter)),
                        ns(fluid_.begin(r.scatter)),
                        ns(fluid_.end(r.end())),
                        {},
                        Direction::backward};
        if (span.end_ns > span.begin_ns) {
            all.push_back(span);
        }
    }
    for (const StepEnd& end : step_ends_) {
        const std::int64_t from = ns(fluid_.end(end.last_compute));
        const Span span{SpanKind::wait,
                        end.pass,
                        0,
                        -1,
                        end.last_unit,
                        from,
                        from,
                        ns(fluid_.end(end.drained)),
                        {},
                        Direction::backward};
        if (span.end_ns > span.begin_ns) {
            all.push_back(span);
        }
    }
    return all;
}

void Play::add_use_spans(std::int64_t use, std::vector<Span>& spans) const {
    const Played& u = played_[static_cast<std::size_t>(use)];
    const UseRecord& r = u.record;
    const UseRecord none;
    const UseRecord& before = use > 0 ? played_[static_cast<std::size_t>(use - 1)].record : none;
    const auto add = [&](SpanKind kind, std::int64_t sequence, std::int64_t issued,
                         std::int64_t begin, std::int64_t end) {
        if (end > begin || kind == SpanKind::compute) {
            const Span span{kind,   r.pass, sequence, r.slot, r.unit,
                            issued, begin,  end,      {},     r.direction};
            spans.push_back(span);
        }
    };
    if (r.gathered) {
        add(SpanKind::gather, r.gather_sequence, r.gather_issued, r.gather_begin, r.gather_end);
    }
    const Exposed exposed = exposed_part(before, r);
    add(SpanKind::wait, r.compute_sequence, exposed.begin, exposed.begin, exposed.end);
    add(SpanKind::wait, r.compute_sequence, r.compute_begin, r.compute_begin,
        ns(fluid_.begin(u.computed)));
    add(SpanKind::compute, r.compute_sequence, r.compute_issued, r.compute_begin, r.compute_end);
}

} // namespace foregather::schedule
