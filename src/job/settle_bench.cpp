// SPDX-License-Identifier: Apache-2.0
// What each key of a bench came to.
#include "settle_bench.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>

namespace foregather::job {
namespace {

template <class T, class Text>
std::string listed(const std::vector<T>& values, const Text& text) {
    std::string list;
    for (const T& value : values) {
        list += (list.empty() ? "" : ", ") + text(value);
    }
    return list;
}
std::string listed(const std::vector<int>& values) {
    return listed(values, [](int value) { return std::to_string(value); });
}

bool any_moves(const BenchPlan& plan) {
    return std::any_of(plan.transports.begin(), plan.transports.end(),
                       [](const Transport& transport) { return moves(transport); });
}

// Does anything go over links where nothing is gathered?
bool reduces(const BenchPlan& plan, int replicas) {
    return plan.trains && (plan.transports.front().name == "shared" || replicas > 1);
}

void settle_prefetch_before(deck::Ledger& ledger, const deck::Deck& deck, const BenchPlan& plan,
                            int replicas) {
    const deck::Sections& s = deck.sections();
    const char* key = s.bench.depths.empty() ? "fsdp.forward_prefetch" : "bench.depths";
    if (!any_moves(plan)) {
        const std::string why = why_nothing_moves(plan.transports.front());
        for (const char* one : {"bench.depths", "fsdp.forward_prefetch", "fsdp.gather_memory"}) {
            ledger.inert(one, why);
        }
        if (!reduces(plan, replicas)) {
            ledger.inert("comm.link_rate", why);
        }
        if (plan.trains) {
            ledger.inert("fsdp.reshard_after_forward", why);
        }
        if (s.output.require == "observed") {
            base::refuse(deck.where("output.require") + " = observed cannot be met: " + why);
        }
        return;
    }
    if (!s.bench.depths.empty()) {
        ledger.inert("fsdp.forward_prefetch", "bench.depths is set: these are measured");
    }
    if (!plan.depths_why.empty()) {
        ledger.clamp(key, listed(plan.depths), plan.depths_why);
    }
}

// What of each depth was seen.
std::string depths_seen(const BenchResults& b) {
    std::string seen;
    for (const ConfigurationFigures& c : b.configurations) {
        for (const DepthFigures& d : c.depths) {
            if (c.moves) {
                seen += (seen.empty() ? "" : "; ") + ("depth " + std::to_string(d.depth)) + ": " +
                        d.verdict;
            }
        }
        if (!seen.empty()) {
            break; // the others are told in /bench/depths
        }
    }
    return seen;
}

void settle_depths(deck::Ledger& ledger, const BenchResults& b, const BenchSeen& seen) {
    const deck::Sections& s = b.facts.plan.sections;
    if (!any_moves(b.facts.plan)) {
        return; // inert
    }
    const std::string what = depths_seen(b);
    const bool listed_depths = !s.bench.depths.empty();
    const char* key = listed_depths ? "bench.depths" : "fsdp.forward_prefetch";
    if (seen.order_wrong) {
        ledger.dishonour(key, what, seen.reason);
    } else if (b.facts.plan.depths_why.empty()) {
        ledger.honour(key, what, seen.reason);
    }
    if (!listed_depths) {
        ledger.honour("bench.depths", "none given: " + listed(b.facts.plan.depths));
    }
}

void settle_measurements(deck::Ledger& ledger, const BenchResults& b) {
    const BenchPlan& plan = b.facts.plan;
    const deck::BenchSection& bench = plan.sections.bench;
    const std::size_t turns = b.turns.front().size();
    const std::string of_turns = std::to_string(turns) + " turns were run";
    ledger.honour("bench.job",
                  plan.trains ? "steps of training, weights left as they are" : "forward passes");
    ledger.honour("bench.transports",
                  listed(plan.transports, [](const Transport& t) { return t.name; }));
    const std::string tokens =
        "passes of " +
        listed(b.configurations,
               [](const ConfigurationFigures& c) { return std::to_string(c.tokens); }) +
        " tokens";
    ledger.honour("bench.tokens", tokens);
    if (bench.tokens.empty()) {
        ledger.honour("batch.tokens", tokens);
    }
    ledger.honour("bench.steps", of_turns + ", " + std::to_string(bench.steps) + " steps of each");
    ledger.honour("bench.warmup",
                  of_turns + ", " + std::to_string(bench.warmup) + " steps before them");
    ledger.honour("bench.pairs",
                  std::to_string(b.turns.front().back().round + 1) + " rounds; " + of_turns);
    std::string order;
    for (std::size_t t = 0; t < std::min<std::size_t>(turns, 8); ++t) {
        order += (t == 0 ? "" : " ") + std::to_string(b.turns.front()[t].depth);
    }
    ledger.honour("bench.seed", "turns began with depths " + order);
}

void settle_training(deck::Ledger& ledger, const BenchResults& b, const BenchSeen& seen) {
    const BenchPlan& plan = b.facts.plan;
    if (!plan.trains) {
        return; // inert
    }
    ledger.honour("train.accumulate", std::to_string(plan.passes_per_step) + " passes a step");
    ledger.honour("train.recompute",
                  "activations of " + std::to_string(seen.activations.count) + " bytes held");
    if (any_moves(plan)) {
        double backward = 0;
        for (const ConfigurationFigures& c : b.configurations) {
            backward = std::max(backward, c.depths.front().sides[1].gathers);
        }
        ledger.honour("fsdp.reshard_after_forward",
                      in_format(backward, "%.0f") + " gathers of a step for backward");
    }
    if (plan.transports.front().name != "none") {
        ledger.honour("fsdp.reduce_dtype", std::string("reduced as ") + base::name_of(plan.reduce) +
                                               ", " + in_format(seen.reduce_bytes, "%.0f") +
                                               " bytes received by a rank");
    }
    if (!any_moves(plan) && reduces(plan, b.topology.replicas())) {
        const double rate = plan.sections.comm.link_rate_bytes_per_s;
        const std::string ran = "reductions ran at up to " +
                                in_format(seen.reduce_bytes_per_s * 8e-9, "%.3g") + " Gb/s";
        ledger.honour("comm.link_rate", rate > 0 ? ran + ", an emulation" : "off: " + ran);
    }
}

} // namespace

void settle_bench_deck(deck::Ledger& ledger, const deck::Deck& deck) {
    const deck::Sections& s = deck.sections();
    if (s.bench.job == "score") {
        for (const char* key : {"train.accumulate", "train.recompute", "fsdp.reduce_dtype",
                                "fsdp.reshard_after_forward"}) {
            ledger.inert(key, "bench.job = score: nothing is trained");
        }
    }
    if (!s.bench.tokens.empty()) {
        ledger.inert("batch.tokens", "bench.tokens is set: these are measured");
    }
    if (!s.bench.transports.empty()) {
        ledger.inert("comm.transport", "bench.transports is set: these are measured");
    }
    if (!s.output.timeline) {
        ledger.inert("output.timeline_passes", "output.timeline = false: no spans are kept");
    }
}

void settle_bench_before(deck::Ledger& ledger, const BenchGround& g, const BenchPlan& plan,
                         const std::string& device_kind) {
    settle_bench_deck(ledger, g.deck);
    settle_kind(ledger, device_kind);
    settle_prefetch_before(ledger, g.deck, plan, g.replicas);
    settle_cut(ledger, g.deck, g.inputs.config);
    settle_tokenizers(ledger, g.deck, g.inputs.weights->tokenizer_sha256(),
                      g.inputs.tokens->tokenizer_sha256());
    const Transport& first = plan.transports.front();
    if (first.name == "none") {
        if (g.deck.sections().bench.transports.empty()) {
            ledger.inert("comm.transport", why_nothing_moves(first));
        }
        if (plan.trains) {
            ledger.inert("fsdp.reduce_dtype", "one rank holds all weights: its gradients are not "
                                              "sent, and sums over replicas are fp32");
        }
    } else if (first.name == host_memory_transport) {
        if (g.deck.sections().bench.transports.empty()) {
            ledger.inert("comm.transport", first.why);
        }
        ledger.inert("comm.link_rate", "copies from host memory are not slowed");
    }
}

void settle_bench_after(deck::Ledger& ledger, const BenchResults& b, const Seen& seen,
                        const BenchSeen& bench) {
    const deck::Sections& s = seen.deck.sections();
    ledger.honour("job.name",
                  "bench: " + std::to_string(b.turns.front().size()) + " turns were run");
    ledger.honour("job.strict", std::to_string(ledger.inert_notes().size()) +
                                    " keys set that are inert, " +
                                    std::to_string(ledger.clamp_notes().size()) + " clamped");
    settle_limit(ledger, s, bench.run_s);
    ledger.honour("job.title", std::to_string(s.job.title.size()) + " bytes stored as /title");
    ledger.honour("model.weights", b.inputs.weights->path() + ": " +
                                       std::to_string(b.inputs.weights->tensors().size()) +
                                       " tensors");
    ledger.honour("data.tokens",
                  b.inputs.tokens->path() + ": " + std::to_string(b.inputs.tokens->tokens()) +
                      " tokens, of which a pass computes " +
                      std::to_string(b.configurations.front().documents) + " pieces");
    settle_device(ledger, seen);
    ledger.honour("fsdp.offload", b.facts.plan.offload
                                      ? "weights lie in host memory"
                                      : "weights lie in the memory of the " + seen.backend_kind);
    settle_gathers(ledger, seen);
    settle_depths(ledger, b, bench);
    settle_measurements(ledger, b);
    settle_training(ledger, b, bench);
    settle_pieces(ledger, seen.deck, b.inputs.chain, b.inputs.config);
    const std::int64_t passes = b.facts.plan.passes();
    settle_output(ledger, seen,
                  {bench.spans_kept, std::min(s.output.timeline_passes, passes), passes,
                   bench.lines_logged, bench.verdict == schedule::Verdict::observed,
                   "the verdict is " + name_of(bench.verdict), bench.reason,
                   bench.replaced ? "a file was there and is replaced" : "no file was there"});
}

} // namespace foregather::job
