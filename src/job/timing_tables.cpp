// SPDX-License-Identifier: Apache-2.0
// The same figures as columns of /timing.
#include <algorithm>

#include <foregather/shard/layout.hpp>

#include "report_parts.hpp"

namespace foregather::job {
namespace {

using Strings = std::vector<std::string>;
using Integers = std::vector<std::int64_t>;
using Reals = std::vector<double>;

// A column of one figure of each direction.
template <class Values, class Of>
io::Column column(const char* name, const char* units, const char* long_name,
                  const std::vector<PrefetchTold>& directions, const Of& of) {
    Values values;
    for (const PrefetchTold& told : directions) {
        values.push_back(of(told));
    }
    return {name, units, long_name, values};
}

} // namespace

io::Table units_table(const model::Chain& chain, int ranks, base::DType gathered) {
    Strings names;
    Integers bytes;
    Integers tensors;
    const shard::ArenaPlan plan(chain.units, ranks);
    for (std::size_t u = 0; u < chain.units.size(); ++u) {
        names.push_back(chain.units[u].name);
        bytes.push_back(base::bytes_of(plan.units[u].layout.padded(), gathered).count);
        tensors.push_back(std::ssize(chain.units[u].parts));
    }
    return {"/timing/units",
            {{"name", "", "unit: what is gathered at once", names},
             {"bytes", "byte", "size when gathered, with padding", bytes},
             {"tensors", "1", "tensors or pieces of tensors in the unit", tensors}},
            {},
            "unit"};
}

io::Table prefetch_table(const std::vector<PrefetchTold>& d) {
    using Told = const PrefetchTold&;
    return {
        "/timing/prefetch",
        {column<Strings>("direction", "", "order of uses", d, [](Told t) { return t.direction; }),
         column<Integers>(
             "requested", "1",
             "fsdp.forward_prefetch, fsdp.backward_prefetch: units to gather ahead; what "
             "auto became",
             d, [](Told t) { return t.requested(); }),
         column<Integers>("depth", "1", "depth in force, after clamping", d,
                          [](Told t) { return t.depth.units; }),
         column<Integers>(
             "issued_ahead", "1",
             "later uses issued when a compute was enqueued, least of any rank and use", d,
             [](Told t) { return t.run.issued_ahead; }),
         column<Reals>("begun_ahead", "1",
                       "later gathers begun when a compute ended, median over judged uses", d,
                       [](Told t) { return t.run.worst.begun_ahead; }),
         column<Reals>("begun_share", "1",
                       "share of judged uses with at least one later gather begun", d,
                       [](Told t) { return t.run.worst.begun_share; }),
         column<Integers>("judged", "1", "uses long enough for the clock", d,
                          [](Told t) { return t.run.worst.judged; }),
         column<Reals>("late_median_s", "s",
                       "begin - max(issue, end of the gather before, slot free), median", d,
                       [](Told t) { return t.run.worst.late_median_s; }),
         column<Reals>("late_p95_s", "s", "the same, 95th percentile", d,
                       [](Told t) { return t.run.worst.late_p95_s; }),
         column<Strings>("verdict", "", "worst of any rank with documents", d,
                         [](Told t) { return name_of(t.run.verdict); }),
         column<Strings>("reason", "", "why, where the verdict is not observed", d,
                         [](Told t) { return t.run.reason; }),
         column<Integers>("gathers", "1", "gathers issued by a rank", d,
                          [](Told t) { return t.run.gathers; }),
         column<Integers>("gathers_ahead", "1",
                          "of these, issued before the compute of the use before", d,
                          [](Told t) { return t.run.gathers_ahead; }),
         column<Reals>("exposed_s", "s",
                       "compute idle while its gather ran or waited, mean over ranks with "
                       "documents",
                       d, [](Told t) { return t.run.exposed_s; }),
         column<Reals>("overlapped_s", "s",
                       "gather and compute at the same time, mean over ranks with documents", d,
                       [](Told t) { return t.run.overlapped_s; }),
         column<Integers>("slots", "1", "buffers for gathered units", d,
                          [](Told t) { return t.slots; }),
         column<Integers>("slot_bytes", "byte", "size of each", d,
                          [](Told t) { return t.slot_bytes.count; })},
        {},
        "direction"};
}

io::Table phases_table(const std::vector<NamedPhase>& phases, const std::vector<RankFigures>& ranks,
                       Attributes attributes) {
    Strings names;
    Integers calls;
    Integers rank_of_max;
    Reals min;
    Reals mean;
    Reals max;
    for (const NamedPhase& phase : phases) {
        const Spread s = spread(ranks, phase.phase);
        names.emplace_back(phase.name);
        calls.push_back(0);
        for (const RankFigures& r : ranks) {
            calls.back() = std::max(calls.back(), r.calls[phase.phase]);
        }
        min.push_back(s.min);
        mean.push_back(s.mean);
        max.push_back(s.max);
        rank_of_max.push_back(s.rank_of_max);
    }
    return {"/timing/phases",
            {{"name", "", "phase", names},
             {"calls", "1", "largest number of any rank", calls},
             {"seconds_min", "s", "over ranks", min},
             {"seconds_mean", "s", "over ranks", mean},
             {"seconds_max", "s", "over ranks", max},
             {"rank_of_max", "1", "rank with the most seconds", rank_of_max}},
            std::move(attributes),
            "phase"};
}

io::Table ranks_table(const std::vector<RankFigures>& ranks, bool training) {
    std::vector<io::Column> columns;
    const auto column = [&](const char* name, const char* units, const char* text, auto member) {
        std::vector<std::int64_t> values;
        for (const RankFigures& r : ranks) {
            values.push_back(r.*member);
        }
        columns.push_back({name, units, text, values});
    };
    column("packs", "1", "packs computed", &RankFigures::packs);
    column("tokens", "token", "tokens computed", &RankFigures::tokens);
    column("peak_host_bytes", "byte", "peak resident set", &RankFigures::peak_host_bytes);
    column("proportional_bytes", "byte", "proportional set at the end of the run",
           &RankFigures::proportional_bytes);
    column("device_bytes", "byte", "allocated on the device", &RankFigures::device_bytes);
    column("bytes_read", "byte", "of weights, from the file", &RankFigures::bytes_read);
    column("bytes_gathered", "byte", "received from other ranks by gathers",
           &RankFigures::bytes_received);
    column("gathers_issued", "1", "gathers enqueued", &RankFigures::issued);
    column("gathers_waited", "1", "gathers that a compute waited for", &RankFigures::waited);
    column("gathers_freed", "1", "gathers whose slot was given back", &RankFigures::freed);
    column("allocations_while_running", "1", "buffers created after start-up",
           &RankFigures::allocations_while_running);
    if (training) {
        const auto count = [&](const char* name, const char* units, const char* text, auto member) {
            Integers values;
            for (const RankFigures& r : ranks) {
                values.push_back(r.train.*member);
            }
            columns.push_back({name, units, text, values});
        };
        count("steps", "1", "optimizer steps", &TrainCounts::steps);
        count("passes", "1", "passes, also those without a document of this rank's",
              &TrainCounts::passes);
        count("reductions", "1", "gradients reduced within a shard group",
              &TrainCounts::reductions);
        count("replica_reductions", "1", "gradients reduced over replicas",
              &TrainCounts::replica_reductions);
        count("bytes_reduced", "byte", "received from other ranks by reductions",
              &TrainCounts::bytes_reduced);
    }
    return {"/timing/ranks", std::move(columns), {}, "rank"};
}

} // namespace foregather::job
