// SPDX-License-Identifier: Apache-2.0
// Tables of at most 100 columns.
#include "bench_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace foregather::job {
namespace {

constexpr double clearly = 0.05; // of a step below its limit

long long whole(std::int64_t n) { return static_cast<long long>(n); }

std::string title(const BenchResults& b, const ConfigurationFigures& c) {
    return "==> " + c.transport + ", " + counted(c.tokens, "token", "tokens") +
           " a rank and pass (" + counted(c.documents, "document", "documents") +
           ", the longest of " + std::to_string(c.longest) + ")" +
           (b.facts.plan.trains && b.facts.plan.passes_per_step > 1
                ? ", " + std::to_string(b.facts.plan.passes_per_step) + " passes a step"
                : "") +
           "\n";
}

std::string ratio_text(const ConfigurationFigures& c, const DepthFigures& d) {
    if (d.depth == c.reference) {
        return "the reference";
    }
    if (!std::isfinite(d.ratio.high)) {
        return text_line("%.3f, too few rounds for an interval", d.ratio.median);
    }
    char text[96];
    std::snprintf(text, sizeof(text), "%.3f (%.3f to %.3f)%s", d.ratio.median, d.ratio.low,
                  d.ratio.high, d.ratio.differs() ? "" : ": no difference detected");
    return text;
}

std::string side_lines(const ConfigurationFigures& c, std::size_t side, bool trains) {
    std::string text = text_line(
        "%-9s%6s%12s%12s%12s%12s%11s%12s%8s", trains ? (side == 0 ? "forward" : "backward") : "",
        "depth", "gather", "alone", "compute", "alone", "exposed", "overlapped", "tax");
    for (const DepthFigures& d : c.depths) {
        const SideFigures& s = d.sides[side];
        text += text_line("%-9s%6lld%12.4f%12.4f%12.4f%12.4f%11.4f%12.4f%7.1f%%", "",
                          whole(d.depth), s.gather, s.gather_alone, s.compute, s.compute_alone,
                          s.exposed, s.overlapped, 100 * s.tax());
    }
    return text;
}

std::string between_lines(const ConfigurationFigures& c) {
    std::string text = text_line("%-9s%6s%12s%12s", "", "depth", "between", "alone");
    for (const DepthFigures& d : c.depths) {
        text += text_line("%-9s%6lld%12.4f%12.4f", "", whole(d.depth), d.between, d.between_alone);
    }
    return text;
}

// With a column of what is summed over replicas where there are any.
std::string reduce_lines(const ConfigurationFigures& c, bool replicas) {
    std::string text =
        text_line("%-9s%6s%10s%10s%10s%10s%11s%10s%10s%10s", "step", "depth", "reduce", "alone",
                  replicas ? "replicas" : "", "exposed", "optimizer", "alone", "between", "alone");
    for (const DepthFigures& d : c.depths) {
        char of_replicas[32] = "";
        if (replicas) {
            std::snprintf(of_replicas, sizeof(of_replicas), "%.4f", d.replica_alone);
        }
        text += text_line("%-9s%6lld%10.4f%10.4f%10s%10.4f%11.4f%10.4f%10.4f%10.4f", "",
                          whole(d.depth), d.reduce, d.reduce_alone, of_replicas, d.exposed_reduce,
                          d.optimizer, d.optimizer_alone, d.between, d.between_alone);
    }
    return text;
}

std::string step_lines(const ConfigurationFigures& c) {
    std::string text = text_line("%6s%10s%10s%12s%13s  %s", "depth", "step", "limit", "step/limit",
                                 "limit/bound", "step / step at the least depth (95 % interval)");
    for (const DepthFigures& d : c.depths) {
        std::string ratio = ratio_text(c, d);
        text += text_line("%6lld%10.4f%10.4f%12.3f%13.3f  ", whole(d.depth), d.step, d.limit,
                          d.limit > 0 ? d.step / d.limit : 0, d.bound > 0 ? d.limit / d.bound : 0);
        text.pop_back(); // the end of the line comes behind the ratio
        text += ratio + (ratio.ends_with("\n") ? "" : "\n");
    }
    const bool below = std::any_of(c.depths.begin(), c.depths.end(), [](const DepthFigures& d) {
        return d.step < (1 - clearly) * d.limit;
    });
    return below
               ? text +
                     "a step below its limit: other work on this machine, or too few rounds, made "
                     "the times alone too long\n"
               : text;
}

std::string bandwidth_lines(const BenchResults& b, const ConfigurationFigures& c) {
    const double p = b.facts.shard_ranks;
    std::string text;
    for (const DepthFigures& d : c.depths) {
        if (d.resident) {
            text +=
                text_line("depth %lld: all units stay in their slots, nothing is gathered after "
                          "the first pass",
                          whole(d.depth));
            continue;
        }
        const double alone = d.algorithm_bandwidth(true) * 1e-9;
        const double here = d.algorithm_bandwidth(false) * 1e-9;
        text += text_line("gathers at depth %lld: algorithm bandwidth %.3f GB/s, bus %.3f GB/s "
                          "(alone %.3f and %.3f)%s",
                          whole(d.depth), here, here * (p - 1) / p, alone, alone * (p - 1) / p,
                          b.link_rate > 0 ? ", EMULATED link" : "");
    }
    if (c.overlap_s == 0) {
        return text;
    }
    text += text_line("contention: compute takes %.2f times as long while anything is "
                      "gathered or reduced, these %.2f times",
                      1 + c.contention.compute, 1 + c.contention.collective);
    if (std::max(c.contention.compute, c.contention.collective) >= most_slowdown) {
        text +=
            text_line("    %.2f times is the most that is fitted: it came out as more, which is "
                      "noise; more rounds (bench.pairs) or steps help",
                      1 + most_slowdown);
    }
    return text;
}

std::string percent(double share) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f%%", 100 * share);
    return text;
}

std::string comparison_lines(const BenchResults& b, std::size_t number) {
    const ComparisonTable table =
        comparison_of(b.configurations[number], b.recommendations[number], b.facts.plan.trains);
    if (table.rows.empty()) {
        return "";
    }
    std::string text = text_line("%-42s%14s%14s%10s", "what the prefetch was worth, s a step",
                                 ("depth " + std::to_string(table.before_depth)).c_str(),
                                 ("depth " + std::to_string(table.after_depth)).c_str(), "change");
    for (const ComparisonRow& row : table.rows) {
        if (!row.known) {
            text += text_line("%-42s%14s%14s", row.quantity.c_str(), "", "-");
        } else if (row.only_after) {
            text += row.unit.empty()
                        ? text_line("%-42s%14s%13.0f%%", row.quantity.c_str(), "", 100 * row.after)
                        : text_line("%-42s%14s%14.4f", row.quantity.c_str(), "", row.after);
        } else {
            const bool both = row.before > 0 && row.after > 0; // nothing is no less of something
            text += text_line("%-42s%14.4f%14.4f%10s", row.quantity.c_str(), row.before, row.after,
                              both ? percent(row.after / row.before - 1).c_str() : "-");
        }
    }
    return text;
}

std::string recommendation_lines(const BenchResults& b, std::size_t number,
                                 const MemoryPlan& memory) {
    const Recommendation& r = b.recommendations[number];
    if (!r.any) {
        return "recommended: nothing to change, nothing is gathered\n";
    }
    const ConfigurationFigures& c = b.configurations[number];
    std::string text = text_line("recommended: depth %lld (%s)", whole(r.depth), r.reason.c_str());
    text += text_line("    predicted step %.3f x that of depth %lld; %s of %s for gathered weights",
                      r.gain, whole(c.reference), counted(r.slots, "slot", "slots").c_str(),
                      in_words(memory.slot_bytes).c_str());
    if (!r.doubt.empty()) {
        text += "    " + r.doubt + "\n";
    }
    if (r.depth > 0 && !r.resident) {
        text += r.tokens > 0
                    ? text_line("    T* = %lld tokens a rank and pass: from there gathers are "
                                "hidden at this depth (%s)",
                                whole(r.tokens),
                                r.proportional ? "computes taken as proportional to tokens"
                                               : "computes on a line through the measured tokens")
                    : "    no number of tokens hides the gathers at this depth\n";
    }
    return text + "    run with " + r.options + "\n";
}

std::string legend(bool trains, bool replicas) {
    std::string text =
        "alone: with nothing beside it, medians over rounds, of the same rank; between: compute\n"
        "       stream in none of the above\n"
        "limit: what the schedule takes when it is replayed with the times alone\n"
        "bound: the longest of the sums alone of gathers and of computes";
    text += trains ? " with the optimizer, and of reductions\n"
                     "compute of backward: with its waits for a free gradient slot, also alone\n"
                   : "\n";
    if (replicas) {
        text += "replicas: of the time alone of reductions, the sums over replicas\n";
    }
    return text + "step/limit, limit/bound: 1 is the least that there can be, but for noise\n";
}

} // namespace

std::string round_line(const Transport& transport, std::int64_t tokens, std::int64_t round,
                       std::int64_t rounds) {
    return transport.name + ", " + counted(tokens, "token", "tokens") + ": round " +
           std::to_string(round + 1) + " of " + std::to_string(rounds);
}

std::string bench_report(const HeadFacts& head, const BenchResults& b, const MemoryPlan& memory,
                         const std::vector<RankFigures>& ranks,
                         const std::vector<std::string>& notes) {
    const deck::BenchSection& bench = b.facts.plan.sections.bench;
    std::string text = head_lines(head);
    text += "measured   " + bench.job + ", " + counted(bench.pairs, "round", "rounds") + " of " +
            std::to_string(bench.warmup) + " + " + counted(bench.steps, "step", "steps") +
            " at each depth in an order drawn by seed " + std::to_string(bench.seed) +
            "; seconds per step of the slowest rank, medians over rounds\n";
    for (std::size_t n = 0; n < b.configurations.size(); ++n) {
        const ConfigurationFigures& c = b.configurations[n];
        text += title(b, c);
        const bool trains = b.facts.plan.trains;
        text += side_lines(c, 0, trains);
        if (trains) {
            text += side_lines(c, 1, trains) + reduce_lines(c, b.topology.replicas() > 1);
        } else {
            text += between_lines(c);
        }
        text += step_lines(c);
        if (c.moves) {
            text += bandwidth_lines(b, c) + comparison_lines(b, n);
        }
        text += recommendation_lines(b, n, memory);
    }
    text += legend(b.facts.plan.trains, b.topology.replicas() > 1);
    text += memory_lines(memory, ranks);
    for (const std::string& note : notes) {
        text += "note       " + note + "\n";
    }
    return text;
}

} // namespace foregather::job
