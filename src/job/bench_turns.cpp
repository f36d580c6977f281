// SPDX-License-Identifier: Apache-2.0
// Figures of sources and reducer before and after the measured steps of a turn.
#include "bench_turns.hpp"

#include <algorithm>

#include "data_order.hpp"

namespace foregather::job {
namespace {

// What counts on, over all that a source and a reducer did.
struct Counted {
    std::array<SideSeconds, 2> sides{};
    schedule::ReduceFigures reduce;
};

Counted count(const schedule::TimedSource& source, const schedule::GradientReducer* reducer) {
    Counted now;
    for (const auto direction : {schedule::Direction::forward, schedule::Direction::backward}) {
        const schedule::PrefetchFigures f = source.figures(direction);
        now.sides[static_cast<std::size_t>(direction)] = {
            f.gather_s, f.compute_s, f.exposed_s, f.overlapped_s, static_cast<double>(f.gathers)};
    }
    if (reducer != nullptr) {
        now.reduce = reducer->figures();
    }
    return now;
}

Turn turn_between(const Counted& before, const Counted& after, double steps) {
    Turn turn;
    for (std::size_t d = 0; d < 2; ++d) {
        const SideSeconds& a = before.sides[d];
        const SideSeconds& b = after.sides[d];
        turn.sides[d] = {(b.gather - a.gather) / steps, (b.compute - a.compute) / steps,
                         (b.exposed - a.exposed) / steps, (b.overlapped - a.overlapped) / steps,
                         (b.gathers - a.gathers) / steps};
    }
    turn.reduce = (after.reduce.reduce_s - before.reduce.reduce_s) / steps;
    turn.exposed_reduce = (after.reduce.exposed_s - before.reduce.exposed_s) / steps;
    turn.overlapped_reduce = std::max(turn.reduce - turn.exposed_reduce, 0.0);
    return turn;
}

} // namespace

std::vector<std::int64_t> order_of_turns(std::int64_t depths, std::int64_t seed,
                                         std::int64_t round) {
    return epoch_order(depths, seed, round, true);
}

BenchTurns::BenchTurns(BenchStage& stage, const BenchStage::Parts& parts, std::vector<int> depths)
    : stage_(stage), p_(parts), depths_(std::move(depths)) {
    const deck::OutputSection& output = p_.plan.sections.output;
    for (const int depth : depths_) {
        sources_.push_back(&stage_.home().open_source(
            {bench_pass(p_.plan, p_.inputs.chain, depth), p_.backend.judged_compute_ns(),
             output.timeline ? output.timeline_passes : 0}));
    }
}

std::int64_t BenchTurns::steps() const {
    return p_.plan.sections.bench.warmup + p_.plan.sections.bench.steps;
}

Turn BenchTurns::play(std::size_t depth) {
    const std::int64_t warmup = p_.plan.sections.bench.warmup;
    const auto measured = static_cast<double>(p_.plan.sections.bench.steps);
    schedule::TimedSource& source = *sources_[depth];
    schedule::GradientReducer* reducer = stage_.reducer();
    Counted before;
    const auto played = stage_.rehearsal().play({source, reducer}, steps(), [&](std::int64_t step) {
        if (step == warmup - 1) {
            before = count(source, reducer);
        }
    });
    ++played_;
    Turn turn = turn_between(before, count(source, reducer), measured);
    for (auto step = played.begin() + warmup; step != played.end(); ++step) {
        turn.step += step->step / measured;
        turn.between += step->between / measured;
        turn.optimizer += step->optimizer / measured;
    }
    turn.depth = depths_[depth];
    return turn;
}

BenchTurns::Measured BenchTurns::run(std::int64_t number, const BenchPack& pack,
                                     const std::function<void(std::int64_t)>& told,
                                     const std::function<bool()>& goes_on) {
    Measured measured;
    Rehearsal& rehearsal = stage_.rehearsal();
    rehearsal.take(pack.inputs);
    AloneMeter alone({rehearsal, stage_.home(), p_.control}, moves(stage_.transport()));
    const std::int64_t rounds = p_.plan.sections.bench.pairs;
    const int allocations = rehearsal.device().allocations();
    for (std::int64_t round = 0; round < rounds; ++round) {
        alone.measure(1);
        const auto order = order_of_turns(std::ssize(depths_), p_.plan.sections.bench.seed,
                                          number * rounds + round);
        for (std::size_t k = 0; k < order.size(); ++k) {
            const auto depth = static_cast<std::size_t>(order[k]);
            if (!goes_on()) {
                return measured;
            }
            p_.control.barrier();
            measured.turns.push_back(play(depth));
            Turn& turn = measured.turns.back();
            turn.configuration = number;
            turn.round = round;
            turn.order = static_cast<std::int64_t>(k);
            latest_.erase(std::remove(latest_.begin(), latest_.end(), depth), latest_.end());
            latest_.push_back(depth);
        }
        told(round);
    }
    measured.allocations = rehearsal.device().allocations() - allocations;
    measured.alone = alone.times();
    return measured;
}

std::string BenchTurns::latest_spans(const ClockOffsets& clock) const {
    const std::int64_t passes = steps() * p_.plan.passes_per_step;
    const std::int64_t kept =
        std::min(passes, p_.plan.sections.output.timeline_passes / 2); // the latest half
    std::vector<schedule::Span> all;
    std::int64_t number = 0; // of the turn
    for (const std::size_t depth : latest_) {
        const std::vector<schedule::Span> spans = sources_[depth]->spans();
        const std::int64_t last = spans.empty() ? 0 : spans.back().pass;
        for (schedule::Span span : spans) {
            if (span.pass > last - kept) {
                span.pass += number * passes - (last - passes + 1);
                all.push_back(span);
            }
        }
        ++number;
    }
    if (const schedule::GradientReducer* reducer = stage_.reducer()) {
        // It took part in all turns: the latest of each depth are the last ones of all.
        const std::int64_t first = played_ * passes - number * passes;
        for (schedule::Span span : reducer->spans()) {
            span.pass -= first;
            if (span.pass >= 0) {
                all.push_back(span);
            }
        }
    }
    return pack_spans(all, clock);
}

} // namespace foregather::job
