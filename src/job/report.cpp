// SPDX-License-Identifier: Apache-2.0
// The table that users read, in the order in which they ask: what ran, where the time went, what
// the prefetch did, how much memory, what came out, what to change.
#include "report.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace foregather::job {
namespace {

std::string line(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string line(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    char text[512];
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return std::string(text) + "\n";
}

std::string head(const RunFacts& f) {
    const mesh::Topology& t = f.topology;
    std::string text =
        line("---- score: %d %s on %d %s, shard %d x %d %s ----", t.size(),
             t.size() == 1 ? "rank" : "ranks", t.nodes(), t.nodes() == 1 ? "node" : "nodes",
             t.shard_size(), t.replicas(), t.replicas() == 1 ? "replica" : "replicas");
    text += line("device     %s (%s), %s, products by %s", f.backend_kind.c_str(),
                 f.backend_why.c_str(), in_words(f.device).c_str(), f.product.c_str());
    text += line("transport  %s (%s)", f.transport.name.c_str(), f.transport.why.c_str());
    const double rate = emulated_rate(f);
    if (rate > 0) {
        text += line("link       EMULATED at %.3g Gb/s by comm.link_rate: gather times are not "
                     "this machine's",
                     rate * 8e-9);
    }
    return text;
}

std::string phases(const RunFacts& f) {
    std::string text =
        line("%-18s%10s%10s%10s%10s%6s", "phase", "calls", "min s", "mean s", "max s", "rank");
    for (std::size_t p = 0; p < phase_count; ++p) {
        const Spread s = spread(f.ranks, static_cast<Phase>(p));
        std::int64_t calls = 0;
        for (const RankFigures& r : f.ranks) {
            calls = std::max(calls, r.calls[p]);
        }
        if (p == phase_product && calls == 0) { // not measured: on cuda all is one stream's time
            continue;
        }
        text += line("%-18s%10lld%10.3f%10.3f%10.3f%6d", phase_names[p],
                     static_cast<long long>(calls), s.min, s.mean, s.max, s.rank_of_max);
    }
    return text;
}

std::string prefetch(const RunFacts& f) {
    const RunPrefetch& p = f.prefetch;
    if (p.verdict == schedule::Verdict::inert) {
        return line("prefetch   inert: %s", f.computed.packs == 0
                                                ? "every pack was in the file already"
                                                : why_nothing_moves(f.transport).c_str());
    }
    const std::string reason = p.reason.empty() ? "" : " (" + p.reason + ")";
    std::string text =
        line("prefetch   depth %d, %d slots of %s: %s%s", f.depth, f.memory.slots,
             in_words(f.memory.slot_bytes).c_str(), name_of(p.verdict).c_str(), reason.c_str());
    if (p.worst.judged == 0) {
        text += line("           issued ahead %lld at every use; no use computed long enough to "
                     "judge by the clock",
                     static_cast<long long>(p.issued_ahead));
    } else {
        text +=
            line("           issued ahead %lld at every use; begun ahead %.0f (median), at %.0f %% "
                 "of %lld judged uses",
                 static_cast<long long>(p.issued_ahead), p.worst.begun_ahead,
                 100 * p.worst.begun_share, static_cast<long long>(p.worst.judged));
    }
    text +=
        line("           %lld gathers a rank, %lld ahead; exposed %.3f s, overlapped %.3f s "
             "(means); late %.3f ms"
             " (median), %.3f ms (95 %%)",
             static_cast<long long>(p.gathers), static_cast<long long>(p.gathers_ahead),
             p.exposed_s, p.overlapped_s, 1e3 * p.worst.late_median_s, 1e3 * p.worst.late_p95_s);
    return text;
}

std::string memory(const RunFacts& f) {
    std::int64_t peak = 0;
    std::int64_t proportional = 0;
    std::int64_t read = 0;
    std::int64_t received = 0;
    std::int64_t copied = 0;
    for (const RankFigures& r : f.ranks) {
        peak = std::max(peak, r.peak_host_bytes);
        proportional = std::max(proportional, r.proportional_bytes);
        read += r.bytes_read;
        received += r.bytes_received;
        copied = std::max(copied, r.bytes_copied_up);
    }
    std::string text = line(
        "memory     a rank: planned %s; proportional %s, peak resident %s (largest of any rank)",
        in_words(f.memory.total()).c_str(), in_words(base::Bytes{proportional}).c_str(),
        in_words(base::Bytes{peak}).c_str());
    text += line("moved      read %s of weights, gathered %s from other ranks (all ranks)",
                 in_words(base::Bytes{read}).c_str(), in_words(base::Bytes{received}).c_str());
    if (f.offload) {
        text += line("offload    weights lie in host memory: %s copied up by a rank, %s a pass",
                     in_words(base::Bytes{copied}).c_str(),
                     in_words(base::Bytes{copied / std::max<std::int64_t>(f.passes, 1)}).c_str());
    }
    return text;
}

std::string results(const RunFacts& f) {
    const io::Summary& s = f.summary;
    std::string text = line(
        "speed      %lld tokens in %lld passes, %.3f s: %.1f tokens/s, %.1f GFLOP/s; first compute "
        "after %.2f s",
        static_cast<long long>(f.computed.tokens), static_cast<long long>(f.passes), run_seconds(f),
        tokens_per_second(f), 1e-9 * flop_per_second(f), f.first_compute_s);
    text += line("loss       %.7f nat over %lld tokens of %lld documents, standard error %.5f",
                 s.loss, static_cast<long long>(s.scored_tokens),
                 static_cast<long long>(s.scored_documents), s.standard_error);
    text += line("perplexity %.7f", s.perplexity);
    return text + (s.bits_per_byte ? line("bits/byte  %.6f", *s.bits_per_byte) : "");
}

} // namespace

double emulated_rate(const RunFacts& f) {
    const bool between_ranks = f.transport.name == "mpi" || f.transport.name == "nccl";
    return between_ranks ? f.deck.sections().comm.link_rate_bytes_per_s : 0;
}

std::string in_words(const device::Facts& facts) {
    if (facts.kind == "host") {
        return std::to_string(facts.threads) + " threads per rank";
    }
    return facts.name + " at " + facts.address + " (rank 0's)";
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
    const model::ModelConfig& c = f.inputs.config;
    const double per_token =
        2.0 * c.layers *
        (2.0 * static_cast<double>(c.width) * (c.heads + c.kv_heads) * c.head_dim +
         3.0 * static_cast<double>(c.width) * static_cast<double>(c.ffn));
    // Keys seen by all queries, twice, are what is attended.
    return per_token * f.computed.tokens +
           2.0 * c.layers * c.heads * c.head_dim * f.computed.attended +
           2.0 * f.computed.rows * static_cast<double>(c.width * c.vocabulary);
}

std::vector<std::string> advice(const RunFacts& f) {
    std::vector<std::string> notes;
    const RunPrefetch& p = f.prefetch;
    const double compute = spread(f.ranks, phase_compute).max;
    const double gather = spread(f.ranks, phase_gather).max;
    if (p.verdict != schedule::Verdict::inert && p.exposed_s > 0.1 * run_seconds(f)) {
        if (f.depth == 0) {
            const bool limited = f.deck.sections().fsdp.forward_prefetch > 0;
            notes.push_back(
                std::string("every gather is waited for: ") +
                (limited ? "a larger fsdp.gather_memory" : "fsdp.forward_prefetch = 1") +
                " would hide up to " +
                std::to_string(static_cast<int>(100 * std::min(compute, gather) / run_seconds(f))) +
                " % of the run behind compute, for one more slot of " +
                in_words(f.memory.slot_bytes));
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
        head(facts) + phases(facts) + prefetch(facts) + memory(facts) + results(facts);
    for (const std::string& note : notes) {
        text += "note       " + note + "\n";
    }
    return text;
}

} // namespace foregather::job
