// SPDX-License-Identifier: Apache-2.0
// The same figures as columns of /timing.
#include <algorithm>
#include <cstring>

#include "report.hpp"

namespace foregather::job {
namespace {

constexpr std::array<const char*, 5> kinds = {"gather", "compute", "wait", "copy", "reduce"};

struct PackedSpan {
    std::int64_t kind, pass, sequence, slot, unit, issued, begin, end, bytes;
};

io::Table units_table(const RunFacts& f) {
    std::vector<std::string> names;
    std::vector<std::int64_t> bytes;
    std::vector<std::int64_t> tensors;
    const shard::ArenaPlan plan(f.inputs.chain.units, f.topology.shard_size());
    for (std::size_t u = 0; u < f.inputs.chain.units.size(); ++u) {
        names.push_back(f.inputs.chain.units[u].name);
        bytes.push_back(base::bytes_of(plan.units[u].layout.padded(), f.weights_seen).count);
        tensors.push_back(std::ssize(f.inputs.chain.units[u].parts));
    }
    return {"/timing/units",
            {{"name", "", "unit: what is gathered at once", names},
             {"bytes", "byte", "size when gathered, with padding", bytes},
             {"tensors", "1", "tensors or pieces of tensors in the unit", tensors}},
            {},
            "unit"};
}

io::Table prefetch_table(const RunFacts& f) {
    using Strings = std::vector<std::string>;
    using Integers = std::vector<std::int64_t>;
    using Reals = std::vector<double>;
    const RunPrefetch& p = f.prefetch;
    return {
        "/timing/prefetch",
        {{"direction", "", "order of uses", Strings{"forward"}},
         {"requested", "1", "fsdp.forward_prefetch: units to gather ahead",
          Integers{f.deck.sections().fsdp.forward_prefetch}},
         {"depth", "1", "depth in force, after clamping", Integers{f.depth}},
         {"issued_ahead", "1",
          "later uses issued when a compute was enqueued, least of any rank and use",
          Integers{p.issued_ahead}},
         {"begun_ahead", "1", "later gathers begun when a compute ended, median over judged uses",
          Reals{p.worst.begun_ahead}},
         {"begun_share", "1", "share of judged uses with at least one later gather begun",
          Reals{p.worst.begun_share}},
         {"judged", "1", "uses long enough for the clock", Integers{p.worst.judged}},
         {"late_median_s", "s", "begin - max(issue, end of the gather before, slot free), median",
          Reals{p.worst.late_median_s}},
         {"late_p95_s", "s", "the same, 95th percentile", Reals{p.worst.late_p95_s}},
         {"verdict", "", "worst of any rank with documents", Strings{name_of(p.verdict)}},
         {"reason", "", "why, where the verdict is not observed", Strings{p.reason}},
         {"gathers", "1", "gathers issued by a rank", Integers{p.gathers}},
         {"gathers_ahead", "1", "of these, issued before the compute of the use before",
          Integers{p.gathers_ahead}},
         {"exposed_s", "s",
          "compute idle while its gather ran or waited, mean over ranks with documents",
          Reals{p.exposed_s}},
         {"overlapped_s", "s",
          "gather and compute at the same time, mean over ranks with documents",
          Reals{p.overlapped_s}},
         {"slots", "1", "buffers for gathered units", Integers{f.memory.slots}},
         {"slot_bytes", "byte", "size of each", Integers{f.memory.slot_bytes.count}}},
        {},
        "direction"};
}

io::Table phases_table(const RunFacts& f) {
    std::vector<std::string> names;
    std::vector<std::int64_t> calls;
    std::vector<std::int64_t> rank_of_max;
    std::vector<double> min;
    std::vector<double> mean;
    std::vector<double> max;
    for (std::size_t p = 0; p < phase_count; ++p) {
        const Spread s = spread(f.ranks, static_cast<Phase>(p));
        names.emplace_back(phase_names[p]);
        calls.push_back(0);
        for (const RankFigures& r : f.ranks) {
            calls.back() = std::max(calls.back(), r.calls[p]);
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
            {{"tokens_per_second", tokens_per_second(f)},
             {"flop_per_second", flop_per_second(f)},
             {"passes", f.passes},
             {"first_compute_s", f.first_compute_s},
             {"link_rate_emulated", emulated_rate(f)}},
            "phase"};
}

io::Table ranks_table(const RunFacts& f) {
    std::vector<io::Column> columns;
    const auto column = [&](const char* name, const char* units, const char* text, auto member) {
        std::vector<std::int64_t> values;
        for (const RankFigures& r : f.ranks) {
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
    column("gathers_issued", "1", "gathers enqueued", &RankFigures::gathers);
    column("gathers_waited", "1", "gathers that a compute waited for", &RankFigures::waited);
    column("gathers_freed", "1", "gathers whose slot was given back", &RankFigures::freed);
    column("allocations_while_running", "1", "buffers created after start-up",
           &RankFigures::allocations_while_running);
    return {"/timing/ranks", std::move(columns), {}, "rank"};
}

} // namespace

std::vector<io::Table> timing_tables(const RunFacts& facts) {
    return {units_table(facts), prefetch_table(facts), phases_table(facts), ranks_table(facts)};
}

std::string pack_spans(const std::vector<schedule::Span>& spans, std::int64_t offset_at_start_ns,
                       std::int64_t offset_at_end_ns, std::int64_t start_ns, std::int64_t end_ns) {
    // Clocks drift: the offset to rank 0's is taken on the line between both measurements.
    const double slope = end_ns > start_ns
                             ? static_cast<double>(offset_at_end_ns - offset_at_start_ns) /
                                   static_cast<double>(end_ns - start_ns)
                             : 0;
    const auto aligned = [&](std::int64_t ns) {
        return ns + offset_at_start_ns +
               static_cast<std::int64_t>(slope * static_cast<double>(ns - start_ns));
    };
    std::string bytes;
    for (const schedule::Span& s : spans) {
        const PackedSpan packed{static_cast<std::int64_t>(s.kind),
                                s.pass,
                                s.sequence,
                                s.slot,
                                s.unit,
                                aligned(s.issued_ns),
                                aligned(s.begin_ns),
                                aligned(s.end_ns),
                                s.received.count};
        bytes.append(reinterpret_cast<const char*>(&packed), sizeof(packed));
    }
    return bytes;
}

io::Table span_table(const std::vector<std::string>& packed, const model::Chain& chain) {
    std::vector<std::int64_t> rank, step, pass, sequence, slot, issued, begin, end, bytes;
    std::vector<std::string> direction, stream, kind, unit;
    for (std::size_t r = 0; r < packed.size(); ++r) {
        for (std::size_t at = 0; at < packed[r].size(); at += sizeof(PackedSpan)) {
            PackedSpan s{};
            std::memcpy(&s, packed[r].data() + at, sizeof(s));
            rank.push_back(static_cast<std::int64_t>(r));
            step.push_back(s.pass);
            pass.push_back(s.pass);
            direction.emplace_back("forward");
            sequence.push_back(s.sequence);
            slot.push_back(s.slot);
            kind.emplace_back(kinds[static_cast<std::size_t>(s.kind)]);
            stream.emplace_back(kind.back() == "wait" ? "compute" : kind.back());
            unit.push_back(chain.units[static_cast<std::size_t>(s.unit)].name);
            issued.push_back(s.issued);
            begin.push_back(s.begin);
            end.push_back(s.end);
            bytes.push_back(s.bytes);
        }
    }
    const std::int64_t zero = begin.empty()
                                  ? 0
                                  : std::min(*std::min_element(issued.begin(), issued.end()),
                                             *std::min_element(begin.begin(), begin.end()));
    for (auto* column : {&issued, &begin, &end}) {
        for (std::int64_t& ns : *column) {
            ns -= zero;
        }
    }
    return {"/timing/spans",
            {{"rank", "1", "rank", rank},
             {"step", "1", "step; in score the pass", step},
             {"pass", "1", "pass over one pack per rank", pass},
             {"direction", "", "order of uses", direction},
             {"sequence", "1", "order of enqueuing on the rank", sequence},
             {"slot", "1", "buffer of the gathered unit, -1: read in place; of a copy, the stage",
              slot},
             {"stream", "", "stream", stream},
             {"kind", "",
              "gather, compute, copy (from host memory, ahead of a gather), or wait: compute idle "
              "while "
              "its gather ran or waited",
              kind},
             {"unit", "", "unit", unit},
             {"issued_ns", "ns",
              "when it was enqueued, on rank 0's clock, from the first span kept", issued},
             {"begin_ns", "ns", "when it began on its stream", begin},
             {"end_ns", "ns", "when it ended", end},
             {"bytes", "byte", "received from other ranks; by a copy, from host memory", bytes}},
            {},
            "span"};
}

} // namespace foregather::job
