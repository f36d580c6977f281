// SPDX-License-Identifier: Apache-2.0
// Lines of text that reports share.
#include "report_parts.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace foregather::job {

std::string text_line(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    char text[512];
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return std::string(text) + "\n";
}

std::string counted(std::int64_t n, const std::string& one, const std::string& many) {
    return std::to_string(n) + " " + (n == 1 ? one : many);
}

std::string in_words(const device::Facts& facts) {
    if (facts.kind == "host") {
        return counted(facts.threads, "thread", "threads") + " per rank";
    }
    return facts.name + " at " + facts.address + " (rank 0's)";
}

double emulated_rate(const deck::Deck& deck, const Transport& transport) {
    const bool between_ranks = transport.name == "mpi" || transport.name == "nccl";
    return between_ranks ? deck.sections().comm.link_rate_bytes_per_s : 0;
}

std::string head_lines(const HeadFacts& f) {
    const mesh::Topology& t = f.topology;
    std::string text = "---- " + f.job + ": " + counted(t.size(), "rank", "ranks") + " on " +
                       counted(t.nodes(), "node", "nodes") + ", shard " +
                       std::to_string(t.shard_size()) + " x " +
                       counted(t.replicas(), "replica", "replicas") + " ----\n";
    text += "device     " + f.backend_kind + " (" + f.backend_why + "), " + in_words(f.device) +
            ", products by " + f.product + "\n";
    text += "transport  " + f.transport.name + " (" + f.transport.why + ")\n";
    const double rate = emulated_rate(f.deck, f.transport);
    if (rate > 0) {
        text += text_line("link       EMULATED at %.3g Gb/s by comm.link_rate: gather times are "
                          "not this machine's",
                          rate * 8e-9);
    }
    return text;
}

std::string phase_lines(const std::vector<NamedPhase>& phases,
                        const std::vector<RankFigures>& ranks) {
    std::string text =
        text_line("%-20s%8s%10s%10s%10s%6s", "phase", "calls", "min s", "mean s", "max s", "rank");
    for (const NamedPhase& phase : phases) {
        const Spread s = spread(ranks, phase.phase);
        std::int64_t calls = 0;
        for (const RankFigures& r : ranks) {
            calls = std::max(calls, r.calls[phase.phase]);
        }
        if (phase.phase == phase_product && calls == 0) {
            continue; // not measured: on cuda all is one stream's time
        }
        text += text_line("%-20s%8lld%10.3f%10.3f%10.3f%6d", phase.name,
                          static_cast<long long>(calls), s.min, s.mean, s.max, s.rank_of_max);
    }
    return text;
}

std::string prefetch_lines(const std::string& label, const PrefetchTold& told) {
    const RunPrefetch& p = told.run;
    std::string first = label;
    first.resize(std::max<std::size_t>(first.size() + 1, 11), ' ');
    if (p.verdict == schedule::Verdict::inert) {
        return first + "inert: " + told.inert + "\n";
    }
    std::string text = first + "depth " + std::to_string(told.depth.units) + ", " +
                       counted(told.slots, "slot", "slots") + " of " + in_words(told.slot_bytes) +
                       ": " + name_of(p.verdict) + (p.reason.empty() ? "" : " (" + p.reason + ")") +
                       "\n";
    if (told.depth.automatic) {
        text += "           " + chosen_line(told.depth) + "\n";
    }
    if (p.worst.judged == 0) {
        text += text_line("           issued ahead %lld at every use; no use computed long enough "
                          "to judge by the clock",
                          static_cast<long long>(p.issued_ahead));
    } else {
        text += text_line("           issued ahead %lld at every use; begun ahead %.0f (median), "
                          "at %.0f %% of %lld judged uses",
                          static_cast<long long>(p.issued_ahead), p.worst.begun_ahead,
                          100 * p.worst.begun_share, static_cast<long long>(p.worst.judged));
    }
    return text + text_line("           %lld gathers a rank, %lld ahead; exposed %.3f s, "
                            "overlapped %.3f s (means); late %.3f ms (median), %.3f ms (95 %%)",
                            static_cast<long long>(p.gathers),
                            static_cast<long long>(p.gathers_ahead), p.exposed_s, p.overlapped_s,
                            1e3 * p.worst.late_median_s, 1e3 * p.worst.late_p95_s);
}

std::string memory_lines(const MemoryPlan& plan, const std::vector<RankFigures>& ranks) {
    std::int64_t peak = 0;
    std::int64_t proportional = 0;
    std::int64_t read = 0;
    std::int64_t received = 0;
    for (const RankFigures& r : ranks) {
        peak = std::max(peak, r.peak_host_bytes);
        proportional = std::max(proportional, r.proportional_bytes);
        read += r.bytes_read;
        received += r.bytes_received;
    }
    return text_line("memory     a rank: planned %s; proportional %s, peak resident %s (largest of "
                     "any rank)",
                     in_words(plan.total()).c_str(), in_words(base::Bytes{proportional}).c_str(),
                     in_words(base::Bytes{peak}).c_str()) +
           text_line("moved      read %s of weights, gathered %s from other ranks (all ranks)",
                     in_words(base::Bytes{read}).c_str(), in_words(base::Bytes{received}).c_str());
}

double forward_flop(const model::ModelConfig& c, double tokens, double attended, double rows) {
    const double per_token =
        2.0 * c.layers *
        (2.0 * static_cast<double>(c.width) * (c.heads + c.kv_heads) * c.head_dim +
         3.0 * static_cast<double>(c.width) * static_cast<double>(c.ffn));
    // Keys seen by all queries, twice, are what is attended.
    return per_token * tokens + 2.0 * c.layers * c.heads * c.head_dim * attended +
           2.0 * rows * static_cast<double>(c.width * c.vocabulary);
}

} // namespace foregather::job
