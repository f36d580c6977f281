// SPDX-License-Identifier: Apache-2.0
// The table that users read, in the order in which they ask: what ran, where the time went, what
// the prefetch did, how much memory, what came out, what to change.
#include "report.hpp"

#include <algorithm>

namespace foregather::job {
namespace {

std::string prefetch(const RunFacts& f) { return prefetch_lines("prefetch", prefetch_told(f)); }

std::string offload(const RunFacts& f) {
    std::int64_t copied = 0;
    for (const RankFigures& r : f.ranks) {
        copied = std::max(copied, r.bytes_copied_up);
    }
    return f.offload
               ? text_line(
                     "offload    weights lie in host memory: %s copied up by a rank, %s a pass",
                     in_words(base::Bytes{copied}).c_str(),
                     in_words(base::Bytes{copied / std::max<std::int64_t>(f.passes, 1)}).c_str())
               : "";
}

std::string results(const RunFacts& f) {
    const io::Summary& s = f.summary;
    std::string text = text_line(
        "speed      %lld tokens in %lld passes, %.3f s: %.1f tokens/s, %.1f GFLOP/s; first compute "
        "after %.2f s",
        static_cast<long long>(f.computed.tokens), static_cast<long long>(f.passes), run_seconds(f),
        tokens_per_second(f), 1e-9 * flop_per_second(f), f.first_compute_s);
    text += text_line("loss       %.7f nat over %lld tokens of %lld documents, standard error %.5f",
                      s.loss, static_cast<long long>(s.scored_tokens),
                      static_cast<long long>(s.scored_documents), s.standard_error);
    text += text_line("perplexity %.7f", s.perplexity);
    return text + (s.bits_per_byte ? text_line("bits/byte  %.6f", *s.bits_per_byte) : "");
}

} // namespace

PrefetchTold prefetch_told(const RunFacts& f) {
    return {"forward",
            "fsdp.forward_prefetch",
            f.prefetch,
            f.deck.sections().fsdp.forward_prefetch,
            f.depth,
            f.memory.slots,
            f.memory.slot_bytes,
            f.computed.packs == 0 ? "every pack was in the file already"
                                  : why_nothing_moves(f.transport)};
}

double run_seconds(const RunFacts& f) { return spread(f.ranks, phase_run).max; }

double flop_per_second(const RunFacts& f) {
    return f.computed.packs > 0 ? flop_of_run(f) / run_seconds(f) : 0;
}

double tokens_per_second(const RunFacts& f) {
    return f.computed.packs > 0 ? f.computed.tokens / run_seconds(f) : 0;
}

Computed computed(const PackPlan& packs, const std::vector<std::int64_t>& to_do,
                  const deck::ScoreSection& score) {
    Computed sum;
    for (const std::int64_t i : to_do) {
        const Pack& pack = packs.packs[static_cast<std::size_t>(i)];
        ++sum.packs;
        sum.tokens += static_cast<double>(pack.tokens);
        sum.rows += static_cast<double>(score.more() ? pack.rows.size() : pack.scored);
        sum.attended += pack.attended;
    }
    return sum;
}

double flop_of_run(const RunFacts& f) {
    return forward_flop(f.inputs.config, f.computed.tokens, f.computed.attended, f.computed.rows);
}

std::vector<std::string> advice(const RunFacts& f) {
    std::vector<std::string> notes;
    const RunPrefetch& p = f.prefetch;
    const double compute = spread(f.ranks, phase_compute).max;
    const double gather = spread(f.ranks, phase_gather).max;
    if (p.verdict != schedule::Verdict::inert && p.exposed_s > 0.1 * run_seconds(f)) {
        if (f.depth.units == 0) {
            const deck::FsdpSection& asked = f.deck.sections().fsdp;
            const bool limited =
                asked.forward_prefetch > 0 || (f.depth.automatic && asked.gather_memory.count > 0);
            notes.push_back(
                std::string("every gather is waited for: ") +
                (limited ? "a larger fsdp.gather_memory" : "fsdp.forward_prefetch = 1") +
                " would hide up to " +
                std::to_string(static_cast<int>(100 * std::min(compute, gather) / run_seconds(f))) +
                " % of the run behind compute, for one more slot of " +
                in_words(f.memory.slot_bytes));
        } else if (f.depth.units + 1 >= std::ssize(f.inputs.chain.units)) {
            notes.emplace_back("all units stay in their slots: nothing is gathered after the first "
                               "pass, and what was waited for was gathered there");
        } else if (gather > compute) {
            notes.push_back(
                "gathers take longer than compute, so depth cannot hide them: more tokens a pass "
                "(batch.tokens) put more compute beside the same bytes");
        }
    }
    const auto idle =
        (f.topology.size() - f.computed.packs % f.topology.size()) % f.topology.size();
    if (idle > 0) {
        notes.push_back(
            std::to_string(f.computed.packs) + " packs over " + std::to_string(f.topology.size()) +
            " ranks leave " + std::to_string(idle) +
            " of them without work in the last pass: smaller batch.tokens make more packs");
    }
    return notes;
}

std::string report(const RunFacts& facts, const std::vector<std::string>& notes) {
    std::string text =
        head_lines({"score", facts.deck, facts.topology, facts.transport, facts.backend_kind,
                    facts.backend_why, facts.product, facts.device}) +
        phase_lines(score_phases(), facts.ranks) + prefetch(facts) +
        memory_lines(facts.memory, facts.ranks) + offload(facts) + results(facts);
    for (const std::string& note : notes) {
        text += "note       " + note + "\n";
    }
    return text;
}

std::vector<io::Table> timing_tables(const RunFacts& f) {
    return {units_table(f.inputs.chain, f.topology.shard_size(), f.weights_seen),
            prefetch_table({prefetch_told(f)}),
            phases_table(score_phases(), f.ranks,
                         {{"tokens_per_second", tokens_per_second(f)},
                          {"flop_per_second", flop_per_second(f)},
                          {"passes", f.passes},
                          {"first_compute_s", f.first_compute_s},
                          {"link_rate_emulated", emulated_rate(f.deck, f.transport)}}),
            ranks_table(f.ranks, false)};
}

} // namespace foregather::job
