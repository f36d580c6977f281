// SPDX-License-Identifier: Apache-2.0
// One statement for each key.
#include "settle.hpp"

#include <algorithm>
#include <cstdio>

#include <foregather/base/error.hpp>

namespace foregather::job {
namespace {

void settle_data(deck::Ledger& ledger, const RunFacts& f) {
    ledger.honour("model.weights", f.inputs.weights->path() + ": " +
                                       std::to_string(f.inputs.weights->tensors().size()) +
                                       " tensors");
    ledger.honour("data.tokens", f.inputs.tokens->path() + ": " +
                                     std::to_string(f.inputs.tokens->tokens()) + " tokens");
    ledger.honour("data.max_documents", std::to_string(f.inputs.packs.documents) + " of " +
                                            std::to_string(f.inputs.tokens->documents()) +
                                            " documents");
    const PackPlan& packs = f.inputs.packs;
    const std::string longest = std::to_string(packs.longest) + " tokens";
    ledger.honour("data.window", packs.cut.window == 0
                                     ? "documents are whole, the longest of " + longest
                                     : std::to_string(packs.cut_documents) + " documents cut, " +
                                           std::to_string(packs.windows) +
                                           " windows, the longest of " + longest);
    if (packs.cut.window > 0) {
        ledger.honour("data.stride", "windows start " + std::to_string(packs.cut.stride) +
                                         " tokens apart: " + std::to_string(packs.tokens) +
                                         " tokens computed in windows");
    }
    ledger.honour("batch.tokens", "packs of up to " + std::to_string(f.inputs.packs.most_tokens) +
                                      " tokens, " + std::to_string(f.inputs.packs.packs.size()) +
                                      " packs");
}

Seen seen_in(const RunFacts& f) {
    return {f.deck,        f.topology, f.transport,   f.transport_seen, f.backend_kind,
            f.backend_why, f.product,  f.product_why, f.param,          f.weights_seen,
            f.memory,      f.ranks,    f.overrides};
}

std::int64_t copied_a_pass(const RunFacts& f) {
    std::int64_t copied = 0;
    for (const RankFigures& r : f.ranks) {
        copied = std::max(copied, r.bytes_copied_up);
    }
    return copied / std::max<std::int64_t>(f.passes, 1);
}

void settle_score(deck::Ledger& ledger, const RunFacts& f) {
    const deck::ScoreSection& asked = f.deck.sections().score;
    std::int64_t n = 0;
    double entropy = 0;
    for (const RankFigures& r : f.ranks) {
        n += r.head_rows;
        entropy += r.entropy_sum;
    }
    const std::string rows = std::to_string(n) + " rows";
    const std::string none = "not asked for: nothing of it is stored";
    const auto honour = [&](const char* key, bool wanted, const std::string& seen) {
        ledger.honour(key, wanted ? seen : none);
    };
    ledger.honour("score.temperature",
                  asked.temperature == 1.0
                      ? "logits of " + rows + " as they are"
                      : "logits of " + rows + " multiplied by " +
                            in_format(static_cast<double>(f.logits_scale), "%.9g"));
    honour("score.entropy", asked.entropy,
           rows + " stored, mean " +
               in_format(entropy / static_cast<double>(std::max<std::int64_t>(n, 1)), "%.6f") +
               " nat");
    honour("score.top_k", asked.top_k > 0,
           rows + " of " + std::to_string(asked.top_k) + " tokens stored");
    honour("score.hidden_states", asked.hidden_states,
           rows + " of " + std::to_string(f.inputs.config.width) + " numbers stored");
    honour("score.logits", asked.logits,
           rows + " of " + std::to_string(f.inputs.config.vocabulary) + " logits stored");
}

} // namespace

void settle_before(deck::Ledger& ledger, const deck::Deck& deck, const Transport& transport,
                   const Inputs& inputs, const Depth& depth, const std::string& device_kind) {
    const deck::Sections& s = deck.sections();
    settle_kind(ledger, device_kind);
    if (!moves(transport)) {
        const std::string why = why_nothing_moves(transport);
        ledger.inert("fsdp.forward_prefetch", why);
        ledger.inert("comm.link_rate", why);
        ledger.inert("fsdp.gather_memory", why);
        if (s.output.require == "observed") {
            base::refuse(deck.where("output.require") + " = observed cannot be met: " + why);
        }
    } else if (!depth.automatic && depth.units != s.fsdp.forward_prefetch) {
        ledger.clamp("fsdp.forward_prefetch", std::to_string(depth.units), depth.why);
    }
    if (s.data.window == 0) {
        ledger.inert("data.stride", "data.window = 0: documents are whole");
    }
    settle_cut(ledger, deck, inputs.config);
    if (transport.name == "none") {
        ledger.inert("comm.transport", why_nothing_moves(transport));
    } else if (transport.name == host_memory_transport) {
        ledger.inert("comm.transport", transport.why);
        ledger.inert("comm.link_rate", "copies from host memory are not slowed");
    }
    if (!s.output.timeline) {
        ledger.inert("output.timeline_passes", "output.timeline = false: no spans are kept");
    }
    settle_tokenizers(ledger, deck, inputs.weights->tokenizer_sha256(),
                      inputs.tokens->tokenizer_sha256());
}

void settle_after(deck::Ledger& ledger, const RunFacts& facts, const Aftermath& after) {
    const deck::Sections& s = facts.deck.sections();
    ledger.honour("job.name",
                  "score: " + std::to_string(facts.summary.scored_tokens) + " tokens scored");
    ledger.honour("job.strict", std::to_string(ledger.inert_notes().size()) +
                                    " keys set that are inert, " +
                                    std::to_string(ledger.clamp_notes().size()) + " clamped");
    settle_limit(ledger, s, run_seconds(facts));
    ledger.honour("job.title", std::to_string(s.job.title.size()) + " bytes stored as /title");
    settle_data(ledger, facts);
    const Seen seen = seen_in(facts);
    settle_device(ledger, seen);
    ledger.honour("fsdp.offload",
                  facts.offload ? "weights lie in host memory: a rank copied up to " +
                                      std::to_string(copied_a_pass(facts)) + " bytes up a pass"
                                : "weights lie in the memory of the " + facts.backend_kind);
    settle_gathers(ledger, seen);
    if (moves(facts.transport)) {
        settle_prefetch(ledger, "fsdp.forward_prefetch", facts.prefetch, facts.depth,
                        s.fsdp.forward_prefetch);
    }
    settle_pieces(ledger, facts.deck, facts.inputs.chain, facts.inputs.config);
    settle_score(ledger, facts);
    const std::string packs = std::to_string(facts.inputs.packs.packs.size()) + " packs were there";
    settle_output(ledger, seen,
                  {after.spans_kept, after.passes_kept, facts.passes, after.lines_logged,
                   facts.prefetch.verdict == schedule::Verdict::observed,
                   "the verdict is " + name_of(facts.prefetch.verdict), facts.prefetch.reason,
                   after.resumed    ? std::to_string(facts.packs_before) + " of " + packs
                   : after.replaced ? "a file was there and is replaced"
                                    : "no file was there"});
}

} // namespace foregather::job
