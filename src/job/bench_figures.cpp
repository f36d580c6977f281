// SPDX-License-Identifier: Apache-2.0
// Medians over turns, replays with the times alone, and the contention that explains the rest.
#include "bench_figures.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace foregather::job {
namespace {

constexpr double unsure_share = 0.1; // of a ratio of too few rounds for an interval
constexpr std::int64_t most_tokens_told = std::int64_t{1} << 24;

double compute_of(const std::vector<Turn>& turns) {
    double sum = 0;
    for (const Turn& turn : turns) {
        sum += turn.sides[0].compute + turn.sides[1].compute;
    }
    return sum;
}

// Of the turns at a depth, in the order of rounds.
template <class Of>
std::vector<double> at_depth(const std::vector<Turn>& turns, std::int64_t depth, const Of& of) {
    std::vector<double> values;
    for (const Turn& turn : turns) {
        if (turn.depth == depth) {
            values.push_back(of(turn));
        }
    }
    return values;
}

// Bytes of whole units that a steady step gathers, by direction.
std::array<double, 2> gathered_bytes(const BenchFacts& f, std::int64_t depth) {
    const shard::ArenaPlan arena(f.chain.units, f.shard_ranks);
    schedule::Plan plan = step_plan(f, depth);
    const std::int64_t passes = plan.passes;
    const bool steps = !plan.step_ends.empty();
    plan.passes = 3 * passes;
    plan.step_ends.clear();
    for (std::int64_t step = 1; steps && step <= 3; ++step) {
        plan.step_ends.push_back(step * passes);
    }
    schedule::Schedule schedule(plan);
    const std::int64_t uses = passes * schedule.uses_per_pass();
    std::array<double, 2> bytes{};
    schedule::Step step;
    while (schedule.next(step)) {
        if (step.kind == schedule::Step::Kind::gather && step.use / uses == 1) {
            const auto& unit = arena.units[static_cast<std::size_t>(step.unit)];
            bytes[static_cast<std::size_t>(step.direction)] +=
                static_cast<double>(base::bytes_of(unit.layout.padded(), f.gathered).count);
        }
    }
    return bytes;
}

SideFigures side_figures(const std::vector<Turn>& turns, std::int64_t depth, std::size_t side) {
    const auto of = [&](double SideSeconds::*member) {
        return median(at_depth(turns, depth, [&](const Turn& t) { return t.sides[side].*member; }));
    };
    SideFigures f;
    f.gather = of(&SideSeconds::gather);
    f.compute = of(&SideSeconds::compute);
    f.exposed = of(&SideSeconds::exposed);
    f.overlapped = of(&SideSeconds::overlapped);
    f.gathers = of(&SideSeconds::gathers);
    return f;
}

DepthFigures depth_figures(const BenchFacts& f, const ConfigurationFigures& c,
                           const std::vector<Turn>& turns, std::int64_t depth) {
    DepthFigures d;
    d.depth = depth;
    const schedule::Plan plan = step_plan(f, depth);
    d.slots = c.moves ? schedule::Schedule(plan).slots() : 0;
    const schedule::Replayed own = schedule::replay(plan, c.alone.own);
    const std::array<double, 2> bytes = gathered_bytes(f, depth);
    for (std::size_t side = 0; side < 2; ++side) {
        d.sides[side] = side_figures(turns, depth, side);
        d.sides[side].gather_alone = own.directions[side].gather;
        d.sides[side].compute_alone = own.directions[side].compute;
        d.sides[side].gathered_bytes = c.moves ? bytes[side] : 0;
    }
    const auto of = [&](double Turn::*member) {
        return median(at_depth(turns, depth, [&](const Turn& t) { return t.*member; }));
    };
    d.resident = c.moves && bytes[0] + bytes[1] == 0;
    d.reduce_alone = own.reduce;
    for (const double seconds : c.alone.own.replica) { // once a step
        d.replica_alone += seconds;
    }
    d.optimizer_alone = own.optimizer;
    d.between_alone = static_cast<double>(f.plan.trains ? 1 : plan.passes) * c.alone.own.between;
    d.reduce = of(&Turn::reduce);
    d.exposed_reduce = of(&Turn::exposed_reduce);
    d.optimizer = of(&Turn::optimizer);
    d.between = of(&Turn::between);
    d.step = of(&Turn::step);
    const auto step = [](const Turn& t) { return t.step; };
    d.ratio = depth == c.reference
                  ? Ratio{}
                  : paired_ratio(at_depth(turns, depth, step), at_depth(turns, c.reference, step),
                                 static_cast<std::uint64_t>(f.plan.sections.bench.seed));
    d.limit = own.step;
    const double gathers = own.directions[0].gather + own.directions[1].gather;
    const double computes = own.directions[0].compute + own.directions[1].compute + own.optimizer;
    d.bound = std::max({gathers, computes, own.reduce});
    return d;
}

// Of each turn, the least of any rank: a rank that comes early to a collective waits in it for the
// others, which is no slowness of the collective.
std::vector<Turn> least_collectives(const std::vector<std::vector<Turn>>& turns) {
    std::vector<Turn> least = turns.front();
    for (const std::vector<Turn>& rank : turns) {
        for (std::size_t t = 0; t < least.size(); ++t) {
            least[t].reduce = std::min(least[t].reduce, rank[t].reduce);
            for (std::size_t side = 0; side < 2; ++side) {
                double& gather = least[t].sides[side].gather;
                gather = std::min(gather, rank[t].sides[side].gather);
            }
        }
    }
    return least;
}

// Over all turns at depth 1 and beyond: what computes and collectives lost beside each other. Where
// depth 0 was measured in turn with them, what runs by itself there is the measure, so that what
// drifts with time falls out; else the times alone.
void fit_contention(const BenchFacts& f, const std::vector<std::vector<Turn>>& turns,
                    ConfigurationFigures& c) {
    const std::vector<Turn> least = least_collectives(turns);
    const auto gathers = [&](std::int64_t depth) {
        return median(at_depth(
            least, depth, [](const Turn& t) { return t.sides[0].gather + t.sides[1].gather; }));
    };
    const DepthFigures* zero = c.find(0);
    double compute_alone = 0, compute = 0, collective_alone = 0, collective = 0;
    for (const DepthFigures& d : c.depths) {
        if (d.depth == 0) {
            continue;
        }
        for (std::size_t side = 0; side < 2; ++side) {
            compute_alone += zero != nullptr && !f.plan.trains ? zero->sides[side].compute
                                                               : d.sides[side].compute_alone;
            compute += d.sides[side].compute;
            c.overlap_s += d.sides[side].overlapped;
        }
        const double alone = d.sides[0].gather_alone + d.sides[1].gather_alone;
        // Deeper, less is gathered: what is left for backward is not gathered again.
        const double share =
            zero == nullptr
                ? 1
                : alone /
                      std::max(zero->sides[0].gather_alone + zero->sides[1].gather_alone, 1e-12);
        collective_alone += zero != nullptr ? share * gathers(0) : alone;
        collective += gathers(d.depth);
        collective_alone += d.reduce_alone;
        collective += median(at_depth(least, d.depth, [](const Turn& t) { return t.reduce; }));
        c.overlap_s += std::max(d.reduce - d.exposed_reduce, 0.0);
    }
    c.contention = {slowdown(compute_alone, compute, c.overlap_s),
                    slowdown(collective_alone, collective, c.overlap_s)};
}

// As if a pass had so many tokens: each use on its own line.
schedule::PassTimes with_tokens(const std::vector<const ConfigurationFigures*>& same,
                                const ConfigurationFigures& of, double tokens, bool& proportional) {
    schedule::PassTimes times = of.alone.own;
    std::vector<double> x;
    for (const ConfigurationFigures* c : same) {
        x.push_back(static_cast<double>(c->tokens));
    }
    for (std::size_t use = 0; use < times.compute.size(); ++use) {
        std::vector<double> y;
        for (const ConfigurationFigures* c : same) {
            y.push_back(c->alone.own.compute[use]);
        }
        times.compute[use] = fit_line(x, y).at(tokens);
    }
    proportional = same.size() < 2;
    return times;
}

// Of a step, exposed to gathers.
double gather_share(const schedule::Replayed& r) {
    return r.step > 0 ? (r.directions[0].exposed + r.directions[1].exposed) / r.step : 0;
}

// T*: of a rank and pass, to a hundredth.
std::int64_t tokens_hidden(const BenchFacts& f, const ConfigurationFigures& of,
                           const std::vector<const ConfigurationFigures*>& same,
                           Recommendation& r) {
    const schedule::Plan plan = step_plan(f, r.depth);
    const auto hidden_at = [&](std::int64_t tokens) {
        const schedule::PassTimes times =
            with_tokens(same, of, static_cast<double>(tokens), r.proportional);
        return gather_share(schedule::replay(plan, times, of.contention)) < hidden_share;
    };
    std::int64_t low = 1;
    std::int64_t high = most_tokens_told;
    if (!hidden_at(high)) {
        return 0;
    }
    while (high - low > std::max<std::int64_t>(low / 100, 1)) {
        const std::int64_t middle = low + (high - low) / 2;
        (hidden_at(middle) ? high : low) = middle;
    }
    return high;
}

std::string options_of(const BenchFacts& f, const ConfigurationFigures& of,
                       const Recommendation& r) {
    const std::string depth = std::to_string(r.depth);
    std::string options = "--fsdp.forward_prefetch=" + depth;
    if (f.plan.trains) {
        options += " --fsdp.backward_prefetch=" + depth;
    }
    if (!r.hidden && r.tokens > of.tokens) {
        options += " --batch.tokens=" + std::to_string(r.tokens);
    }
    return options;
}

bool of_enough_rounds(const Ratio& ratio) { return std::isfinite(ratio.high); }

std::string ratio_in_words(const Ratio& ratio) {
    char text[96];
    if (of_enough_rounds(ratio)) {
        std::snprintf(text, sizeof(text), "%.3f x (%.3f to %.3f)", ratio.median, ratio.low,
                      ratio.high);
    } else {
        std::snprintf(text, sizeof(text), "%.3f x (of too few rounds to be sure)", ratio.median);
    }
    return text;
}

// Is a step of `share` x the reference's outside what was measured, by more than what counts?
bool measured_less(const Ratio& ratio, double share) {
    const double high = of_enough_rounds(ratio) ? ratio.high : ratio.median * (1 + unsure_share);
    return high < share - hidden_share;
}
bool measured_more(const Ratio& ratio, double share) {
    const double low = of_enough_rounds(ratio) ? ratio.low : ratio.median * (1 - unsure_share);
    return low > share + hidden_share;
}

// Does what was measured say otherwise than the prediction: of the recommended depth, or, where the
// reference is recommended, of one that was faster?
std::string doubt_of(const ConfigurationFigures& c, const Recommendation& r) {
    const std::string of_reference = " that of depth " + std::to_string(c.reference);
    if (r.depth != c.reference) {
        const DepthFigures* d = c.find(r.depth);
        if (d == nullptr) {
            return "depth " + std::to_string(r.depth) + " was not measured";
        }
        const bool outside = measured_less(d->ratio, r.gain) || measured_more(d->ratio, r.gain);
        return outside
                   ? "measured otherwise: its step took " + ratio_in_words(d->ratio) + of_reference
                   : "";
    }
    for (const DepthFigures& d : c.depths) {
        if (measured_less(d.ratio, 1)) {
            return "measured otherwise: depth " + std::to_string(d.depth) + " took " +
                   ratio_in_words(d.ratio) + of_reference;
        }
    }
    return "";
}

} // namespace

double DepthFigures::algorithm_bandwidth(bool alone) const {
    double bytes = 0;
    double seconds = 0;
    for (const SideFigures& side : sides) {
        bytes += side.gathered_bytes;
        seconds += alone ? side.gather_alone : side.gather;
    }
    return seconds > 0 ? bytes / seconds : 0;
}

const DepthFigures* ConfigurationFigures::find(std::int64_t depth) const {
    for (const DepthFigures& d : depths) {
        if (d.depth == depth) {
            return &d;
        }
    }
    return nullptr;
}

schedule::Plan step_plan(const BenchFacts& f, std::int64_t depth) {
    schedule::Plan plan = bench_pass(f.plan, f.chain, static_cast<int>(depth));
    plan.passes = f.plan.passes_per_step;
    if (f.plan.trains) {
        plan.step_ends = {plan.passes};
    }
    return plan;
}

ConfigurationFigures judge_turns(const BenchFacts& f, int configuration, const Transport& transport,
                                 const BenchPack& pack, const std::vector<std::vector<Turn>>& turns,
                                 const std::vector<schedule::PassTimes>& own,
                                 const schedule::PassTimes& agreed) {
    ConfigurationFigures c;
    c.transport = transport.name;
    c.moves = moves(transport);
    c.tokens = pack.tokens;
    c.documents = pack.documents;
    c.longest = pack.longest;
    c.attended = pack.attended;
    for (std::size_t r = 1; r < turns.size(); ++r) {
        const auto slowest = static_cast<std::size_t>(c.slowest_rank);
        c.slowest_rank = compute_of(turns[r]) > compute_of(turns[slowest]) ? static_cast<int>(r)
                                                                           : c.slowest_rank;
    }
    const std::vector<Turn>& mine = turns[static_cast<std::size_t>(c.slowest_rank)];
    c.alone = {own[static_cast<std::size_t>(c.slowest_rank)], agreed};
    const std::vector<int>& depths = f.plan.depths_of(transport);
    c.reference = *std::min_element(depths.begin(), depths.end());
    for (const int depth : depths) {
        c.depths.push_back(depth_figures(f, c, mine, depth));
        c.depths.back().configuration = configuration;
    }
    fit_contention(f, turns, c);
    for (DepthFigures& d : c.depths) {
        d.predicted = schedule::replay(step_plan(f, d.depth), c.alone.own, c.contention).step;
    }
    return c;
}

Recommendation recommend(const BenchFacts& f, const ConfigurationFigures& of,
                         const std::vector<const ConfigurationFigures*>& same) {
    Recommendation r;
    if (!of.moves) {
        return r;
    }
    r.any = true;
    const int deepest = *std::max_element(f.plan.depths.begin(), f.plan.depths.end());
    const schedule::DepthRange range{0, std::min(deepest, schedule::most_chosen_depth)};
    const schedule::DepthChoice choice = schedule::choose_prefetch_depths(
        [&](int forward, int /*backward*/) { return step_plan(f, forward); }, of.alone.own,
        of.contention, range, f.plan.trains ? range : schedule::DepthRange{});
    r.depth = choice.chosen.forward;
    r.exposed_share = choice.chosen.share();
    r.hidden = r.exposed_share < hidden_share;
    r.reason = choice.reason;
    r.resident = choice.resident;
    const schedule::Plan plan = step_plan(f, r.depth);
    r.slots = schedule::Schedule(plan).slots();
    r.gain = choice.chosen.step /
             schedule::replay(step_plan(f, of.reference), of.alone.own, of.contention).step;
    r.doubt = doubt_of(of, r);
    r.tokens = r.depth > 0 && !r.resident ? tokens_hidden(f, of, same, r) : 0;
    r.options = options_of(f, of, r);
    return r;
}

} // namespace foregather::job
