// SPDX-License-Identifier: Apache-2.0
// Figures as columns.
#include "bench_results.hpp"

#include "report_parts.hpp"

namespace foregather::job {
namespace {

using Strings = std::vector<std::string>;
using Integers = std::vector<std::int64_t>;
using Reals = std::vector<double>;

// Columns of one figure of each row.
template <class Row>
class Columns {
public:
    explicit Columns(const std::vector<Row>& rows) : rows_(rows) {}

    template <class Of>
    void reals(const std::string& name, const char* units, const std::string& meaning,
               const Of& of) {
        add<Reals>(name, units, meaning, of);
    }
    template <class Of>
    void integers(const std::string& name, const char* units, const std::string& meaning,
                  const Of& of) {
        add<Integers>(name, units, meaning, of);
    }
    template <class Of>
    void strings(const std::string& name, const std::string& meaning, const Of& of) {
        add<Strings>(name, "", meaning, of);
    }
    std::vector<io::Column> take() { return std::move(columns_); }

private:
    template <class Values, class Of>
    void add(const std::string& name, const char* units, const std::string& meaning, const Of& of) {
        Values values;
        for (const Row& row : rows_) {
            values.push_back(of(row));
        }
        columns_.push_back({name, units, meaning, std::move(values)});
    }

    const std::vector<Row>& rows_;
    std::vector<io::Column> columns_;
};

std::string name_of(schedule::Direction direction) {
    return direction == schedule::Direction::forward ? "forward" : "backward";
}

constexpr const char* per_step = ", per step of the slowest rank, median over turns";

io::Table configurations_table(const BenchResults& b) {
    using C = const ConfigurationFigures&;
    Columns columns(b.configurations);
    columns.strings("transport", "how weights move", [](C c) { return c.transport; });
    columns.integers("moves", "1", "1: weights are gathered", [](C c) { return c.moves ? 1 : 0; });
    columns.integers("tokens", "1", "tokens of a rank and pass", [](C c) { return c.tokens; });
    columns.integers("documents", "1", "pieces of documents in them",
                     [](C c) { return c.documents; });
    columns.integers("longest", "1", "tokens of the longest", [](C c) { return c.longest; });
    columns.reals("attended", "1", "length x (length + 1), summed over them",
                  [](C c) { return c.attended; });
    columns.integers("slowest_rank", "1", "the rank that computed longest: whose figures these are",
                     [](C c) { return c.slowest_rank; });
    columns.integers("reference_depth", "1", "depth that ratios are to",
                     [](C c) { return c.reference; });
    columns.reals("contention_compute", "1", "share by which compute was slowed beside collectives",
                  [](C c) { return c.contention.compute; });
    columns.reals("contention_collective", "1",
                  "share by which gathers and reductions were slowed beside compute",
                  [](C c) { return c.contention.collective; });
    columns.reals("overlap_s", "s", "overlap per step that both were fitted to, over depths",
                  [](C c) { return c.overlap_s; });
    columns.reals("between_s", "s", "compute idle between passes, or around an optimizer's update",
                  [](C c) { return c.alone.agreed.between; });
    const deck::Sections& s = b.facts.plan.sections;
    return {"/bench/configurations",
            columns.take(),
            {{"job", s.bench.job},
             {"device", b.device_kind},
             {"ranks", std::int64_t{b.topology.size()}},
             {"shard_ranks", std::int64_t{b.topology.shard_size()}},
             {"replicas", std::int64_t{b.topology.replicas()}},
             {"passes_per_step", b.facts.plan.passes_per_step},
             {"param_dtype", std::string(base::name_of(b.facts.gathered))},
             {"reduce_dtype", std::string(base::name_of(b.facts.plan.reduce))},
             {"reshard_after_forward", std::int64_t{s.fsdp.reshard_after_forward ? 1 : 0}},
             {"recompute", s.train.recompute},
             {"link_rate_bytes_per_s", b.link_rate},
             {"steps", s.bench.steps},
             {"warmup", s.bench.warmup},
             {"pairs", s.bench.pairs},
             {"seed", s.bench.seed}},
            "configuration"};
}

template <class Row>
void add_side(Columns<Row>& columns, std::size_t side) {
    using D = const DepthFigures&;
    const std::string d = side == 0 ? "forward_" : "backward_";
    const std::string of = side == 0 ? "forward" : "backward";
    const auto add = [&](const char* name, const std::string& meaning,
                         double SideFigures::*member) {
        columns.reals(d + name, "s", of + " " + meaning + per_step,
                      [=](D row) { return row.sides[side].*member; });
    };
    add("gather_alone_s", "gathers by themselves", &SideFigures::gather_alone);
    add("gather_s", "gathers at this depth", &SideFigures::gather);
    add("compute_alone_s", "compute by itself", &SideFigures::compute_alone);
    add("compute_s", "compute at this depth", &SideFigures::compute);
    add("exposed_s", "compute idle while a gather ran or waited", &SideFigures::exposed);
    add("overlapped_s", "gathers beside compute", &SideFigures::overlapped);
    columns.reals(d + "tax", "1", of + " compute at this depth / by itself - 1",
                  [=](D row) { return row.sides[side].tax(); });
    columns.reals(d + "gathers", "1", of + " gathers per step",
                  [=](D row) { return row.sides[side].gathers; });
    columns.reals(d + "gathered_bytes", "byte", "whole units that they bring, per step",
                  [=](D row) { return row.sides[side].gathered_bytes; });
}

void add_step(Columns<DepthFigures>& columns, double link_share) {
    using D = const DepthFigures&;
    const std::string end = per_step;
    columns.reals("reduce_alone_s", "s", "reductions by themselves, sums over replicas included",
                  [](D d) { return d.reduce_alone; });
    columns.reals("replica_alone_s", "s", "of reduce_alone_s: sums over replicas, once a step",
                  [](D d) { return d.replica_alone; });
    columns.reals("reduce_s", "s", "reductions at this depth" + end, [](D d) { return d.reduce; });
    columns.reals("exposed_reduce_s", "s", "compute idle for reductions" + end,
                  [](D d) { return d.exposed_reduce; });
    columns.reals("optimizer_s", "s", "updates" + end, [](D d) { return d.optimizer; });
    columns.reals("optimizer_alone_s", "s", "updates with nothing beside them, per step",
                  [](D d) { return d.optimizer_alone; });
    columns.reals("between_s", "s", "compute stream in none of these" + end,
                  [](D d) { return d.between; });
    columns.reals("between_alone_s", "s", "the same with nothing beside computes, per step",
                  [](D d) { return d.between_alone; });
    columns.reals("step_s", "s", "from the end of a step to that of the next" + end,
                  [](D d) { return d.step; });
    columns.reals("ratio", "1", "step / step at the reference depth, median over rounds",
                  [](D d) { return d.ratio.median; });
    columns.reals("ratio_low", "1", "lower end of its 95 % bootstrap interval",
                  [](D d) { return d.ratio.low; });
    columns.reals("ratio_high", "1", "upper end of its 95 % bootstrap interval",
                  [](D d) { return d.ratio.high; });
    columns.integers("differs", "1", "1: the interval does not include 1",
                     [](D d) { return d.ratio.differs() ? 1 : 0; });
    columns.reals("limit_s", "s", "the schedule replayed with the slowest rank's times alone",
                  [](D d) { return d.limit; });
    columns.reals("predicted_s", "s", "the same with the contention that was fitted",
                  [](D d) { return d.predicted; });
    columns.reals("bound_s", "s", "the longer of all gathers, all reductions, all computes",
                  [](D d) { return d.bound; });
    for (const bool alone : {true, false}) {
        const std::string when = alone ? "_alone" : "";
        const std::string words = alone ? ", by themselves" : ", at this depth";
        columns.reals("algorithm_bandwidth" + when, "byte/s", "whole units / gather time" + words,
                      [=](D d) { return d.algorithm_bandwidth(alone); });
        columns.reals("bus_bandwidth" + when, "byte/s",
                      "the same x (P - 1) / P: what a link carries" + words,
                      [=](D d) { return link_share * d.algorithm_bandwidth(alone); });
    }
}

io::Table depths_table(const BenchResults& b) {
    using D = const DepthFigures&;
    std::vector<DepthFigures> rows;
    for (const ConfigurationFigures& c : b.configurations) {
        rows.insert(rows.end(), c.depths.begin(), c.depths.end());
    }
    const auto of = [&](D d) -> const ConfigurationFigures& {
        return b.configurations[static_cast<std::size_t>(d.configuration)];
    };
    Columns columns(rows);
    columns.integers("configuration", "1", "row of /bench/configurations",
                     [](D d) { return d.configuration; });
    columns.strings("transport", "how weights move", [&](D d) { return of(d).transport; });
    columns.integers("tokens", "1", "tokens of a rank and pass", [&](D d) { return of(d).tokens; });
    columns.integers("depth", "1", "units gathered ahead", [](D d) { return d.depth; });
    columns.integers("slots", "1", "of gathered units", [](D d) { return d.slots; });
    columns.integers("rank", "1", "the slowest: whose figures these are",
                     [&](D d) { return of(d).slowest_rank; });
    columns.strings("verdict", "on the prefetch, the worst of any rank; empty: nothing moves",
                    [](D d) { return d.verdict; });
    add_side(columns, 0);
    add_side(columns, 1);
    const double p = b.facts.shard_ranks;
    add_step(columns, (p - 1) / p);
    return {"/bench/depths", columns.take(), {}, "row"};
}

struct RankTurn : Turn {
    std::int64_t rank = 0;
};

io::Table turns_table(const BenchResults& b) {
    using T = const RankTurn&;
    std::vector<RankTurn> rows;
    for (std::size_t at = 0; !b.turns.empty() && at < b.turns.front().size(); ++at) {
        for (std::size_t r = 0; r < b.turns.size(); ++r) {
            rows.push_back({b.turns[r][at], static_cast<std::int64_t>(r)});
        }
    }
    Columns columns(rows);
    columns.integers("configuration", "1", "row of /bench/configurations",
                     [](T t) { return t.configuration; });
    columns.integers("round", "1", "in which every depth has a turn", [](T t) { return t.round; });
    columns.integers("order", "1", "of the turn in its round", [](T t) { return t.order; });
    columns.integers("depth", "1", "units gathered ahead", [](T t) { return t.depth; });
    columns.integers("rank", "1", "rank", [](T t) { return t.rank; });
    columns.reals("step_s", "s", "step, mean over the turn's", [](T t) { return t.step; });
    for (std::size_t side = 0; side < 2; ++side) {
        const std::string d = side == 0 ? "forward_" : "backward_";
        const auto add = [&](const char* name, double SideSeconds::*member) {
            columns.reals(d + name, "s", "as in /bench/depths, mean over the turn's steps",
                          [=](T t) { return t.sides[side].*member; });
        };
        add("gather_s", &SideSeconds::gather);
        add("compute_s", &SideSeconds::compute);
        add("exposed_s", &SideSeconds::exposed);
        add("overlapped_s", &SideSeconds::overlapped);
    }
    const auto add = [&](const char* name, double Turn::*member) {
        columns.reals(name, "s", "as in /bench/depths, mean over the turn's steps",
                      [=](T t) { return t.*member; });
    };
    add("reduce_s", &Turn::reduce);
    add("exposed_reduce_s", &Turn::exposed_reduce);
    add("optimizer_s", &Turn::optimizer);
    add("between_s", &Turn::between);
    return {"/bench/turns", columns.take(), {}, "turn"};
}

struct AloneRow {
    std::int64_t configuration = 0;
    std::string kind;
    std::int64_t use = -1;
    base::UnitId unit = 0;
    double seconds = 0, slowest = 0;
};

std::vector<AloneRow> alone_rows(const BenchResults& b) {
    std::vector<AloneRow> rows;
    const schedule::Plan pass = bench_pass(b.facts.plan, b.facts.chain, 0);
    std::int64_t number = 0;
    for (const ConfigurationFigures& c : b.configurations) {
        const schedule::PassTimes& own = c.alone.own;
        const schedule::PassTimes& all = c.alone.agreed;
        for (std::size_t use = 0; use < all.compute.size(); ++use) {
            rows.push_back({number, "compute", static_cast<std::int64_t>(use), pass.pass[use].unit,
                            all.compute[use], own.compute[use]});
        }
        for (const auto& [kind, of] : {std::pair{"gather", &schedule::PassTimes::gather},
                                       std::pair{"reduce", &schedule::PassTimes::reduce},
                                       std::pair{"replica", &schedule::PassTimes::replica},
                                       std::pair{"optimizer", &schedule::PassTimes::optimizer}}) {
            for (std::size_t u = 0; u < (all.*of).size(); ++u) {
                rows.push_back(
                    {number, kind, -1, static_cast<base::UnitId>(u), (all.*of)[u], (own.*of)[u]});
            }
        }
        ++number;
    }
    return rows;
}

io::Table alone_table(const BenchResults& b) {
    using A = const AloneRow&;
    const std::vector<AloneRow> rows = alone_rows(b);
    Columns columns(rows);
    columns.integers("configuration", "1", "row of /bench/configurations",
                     [](A a) { return a.configuration; });
    columns.strings("kind", "compute, gather, reduce, replica or optimizer",
                    [](A a) { return a.kind; });
    columns.integers("use", "1", "of the pass, of a compute; else -1", [](A a) { return a.use; });
    columns.strings("unit", "its name", [&](A a) {
        return b.facts.chain.units[static_cast<std::size_t>(a.unit)].name;
    });
    columns.integers("unit_number", "1", "row of /bench/units", [](A a) { return a.unit; });
    columns.reals("seconds", "s", "by itself, median; the longest of any rank",
                  [](A a) { return a.seconds; });
    columns.reals("seconds_slowest", "s", "the same of the slowest rank",
                  [](A a) { return a.slowest; });
    return {"/bench/alone", columns.take(), {}, "row"};
}

struct ComparedRow : ComparisonRow {
    std::int64_t configuration = 0, before_depth = 0, after_depth = 0;
};

io::Table comparison_table(const BenchResults& b) {
    using R = const ComparedRow&;
    std::vector<ComparedRow> rows;
    for (std::size_t c = 0; c < b.configurations.size(); ++c) {
        const ComparisonTable table =
            comparison_of(b.configurations[c], b.recommendations[c], b.facts.plan.trains);
        for (const ComparisonRow& row : table.rows) {
            rows.push_back(
                {row, static_cast<std::int64_t>(c), table.before_depth, table.after_depth});
        }
    }
    Columns columns(rows);
    columns.integers("configuration", "1", "row of /bench/configurations",
                     [](R r) { return r.configuration; });
    columns.strings("quantity", "what is compared", [](R r) { return r.quantity; });
    columns.strings("unit", "s, or empty of a share", [](R r) { return r.unit; });
    columns.integers("before_depth", "1", "depth before", [](R r) { return r.before_depth; });
    columns.integers("after_depth", "1", "depth after", [](R r) { return r.after_depth; });
    columns.reals("before", "as unit says", "at the depth before", [](R r) { return r.before; });
    columns.reals("after", "as unit says", "at the depth after", [](R r) { return r.after; });
    return {"/bench/comparison", columns.take(), {}, "row"};
}

io::Table recommendation_table(const BenchResults& b) {
    using R = const Recommendation&;
    Columns columns(b.recommendations);
    columns.integers("depth", "1", "recommended; 0 also where nothing moves",
                     [](R r) { return r.depth; });
    columns.integers("slots", "1", "of gathered units, for that depth",
                     [](R r) { return r.slots; });
    columns.reals("exposed_share", "1", "of a step, to gathers, predicted at that depth",
                  [](R r) { return r.exposed_share; });
    columns.reals("gain", "1", "predicted step / predicted step at the reference depth",
                  [](R r) { return r.gain; });
    columns.integers(
        "tokens", "1",
        "T*: of a rank and pass, from which gathers are hidden at that depth; 0: none, or "
        "nothing is gathered",
        [](R r) { return r.tokens; });
    columns.integers("proportional", "1", "1: computes were taken as proportional to tokens",
                     [](R r) { return r.proportional ? 1 : 0; });
    columns.strings("reason", "why this depth", [](R r) { return r.reason; });
    columns.strings("options", "to run with, as they are typed; empty: nothing moves",
                    [](R r) { return r.options; });
    columns.strings("doubt", "what measured steps say otherwise; empty: nothing",
                    [](R r) { return r.doubt; });
    return {"/bench/recommendation", columns.take(), {}, "configuration"};
}

} // namespace

std::vector<io::Table> bench_start_tables(const BenchFacts& f) {
    io::Table units = units_table(f.chain, f.shard_ranks, f.gathered);
    units.path = "/bench/units";
    const std::vector<schedule::Use> pass = bench_pass(f.plan, f.chain, 0).pass;
    using U = const schedule::Use&;
    Columns columns(pass);
    columns.strings("unit", "its name",
                    [&](U u) { return f.chain.units[static_cast<std::size_t>(u.unit)].name; });
    columns.integers("unit_number", "1", "row of /bench/units", [](U u) { return u.unit; });
    columns.strings("direction", "forward or backward", [](U u) { return name_of(u.direction); });
    columns.integers("needs_weights", "1", "0: it is never gathered for",
                     [](U u) { return u.needs_weights ? 1 : 0; });
    return {units, {"/bench/uses", columns.take(), {}, "use"}};
}

io::Text bench_config_text(const BenchInputs& inputs) {
    return {"/bench/model_config", inputs.weights->config_json()};
}

std::vector<io::Table> bench_tables(const BenchResults& b) {
    return {configurations_table(b), depths_table(b),     turns_table(b),
            alone_table(b),          comparison_table(b), recommendation_table(b)};
}

} // namespace foregather::job
