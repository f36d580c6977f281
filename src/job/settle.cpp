// SPDX-License-Identifier: Apache-2.0
// One statement for each key.
#include "settle.hpp"

#include <algorithm>
#include <cstdio>

#include <foregather/base/error.hpp>

namespace foregather::job {
namespace {

std::string number(double value, const char* format) {
    char text[64];
    std::snprintf(text, sizeof(text), format, value);
    return text;
}

void settle_prefetch(deck::Ledger& ledger, const RunFacts& f) {
    const RunPrefetch& p = f.prefetch;
    const std::string seen = "issued ahead " + std::to_string(p.issued_ahead) + ", begun ahead " +
                             number(p.worst.begun_ahead, "%.0f") + " (median), verdict " +
                             name_of(p.verdict);
    if (p.order_wrong) {
        ledger.dishonour("fsdp.forward_prefetch", seen, p.reason);
    } else if (f.depth != f.deck.sections().fsdp.forward_prefetch) {
        return; // clamped before the run
    } else {
        ledger.honour("fsdp.forward_prefetch", seen, p.reason);
    }
}

void settle_gathers(deck::Ledger& ledger, const RunFacts& f) {
    const deck::Sections& s = f.deck.sections();
    double longest = 0;
    double silence = 0;
    double fastest = 0;
    for (const RankFigures& r : f.ranks) {
        longest = std::max(longest, r.longest_gather_s);
        silence = std::max({silence, r.longest_silence_s, r.longest_standstill_s});
        fastest = std::max(fastest, r.gather_bytes_per_s);
    }
    ledger.honour("comm.timeout", "longest gather " + number(longest, "%.3f") +
                                      " s, longest silence of a rank or of file work " +
                                      number(silence, "%.1f") + " s");
    const bool from_ranks = f.transport.name != "none" && f.transport.name != host_memory_transport;
    if (from_ranks) {
        ledger.honour("comm.transport", f.transport_seen, f.transport.why);
    }
    if (!moves(f.transport)) {
        return;
    }
    settle_prefetch(ledger, f);
    const std::int64_t slots = f.memory.slots * f.memory.slot_bytes.count;
    const std::string held = std::to_string(f.memory.slots) + " slots x " +
                             std::to_string(f.memory.slot_bytes.count) +
                             " bytes = " + std::to_string(slots) + " bytes";
    if (s.fsdp.gather_memory.count > 0 && slots > s.fsdp.gather_memory.count) {
        ledger.dishonour("fsdp.gather_memory", held, "that is more than the limit");
    } else {
        ledger.honour("fsdp.gather_memory", held);
    }
    if (!from_ranks) {
        return;
    }
    if (s.comm.link_rate_bytes_per_s == 0) {
        ledger.honour("comm.link_rate",
                      "off: gathers ran at up to " + number(fastest * 8e-9, "%.3g") + " Gb/s");
    } else if (fastest > 1.001 * s.comm.link_rate_bytes_per_s) {
        ledger.dishonour("comm.link_rate", number(fastest * 8e-9, "%.4g") + " Gb/s",
                         "gathers ran faster than the emulated link");
    } else {
        ledger.honour("comm.link_rate", "gathers ran at " + number(fastest * 8e-9, "%.4g") +
                                            " Gb/s of received bytes, an emulation");
    }
}

void settle_device(deck::Ledger& ledger, const RunFacts& f) {
    ledger.honour("device.kind", f.backend_kind, f.backend_why);
    std::int64_t most_seen = 0;
    std::int64_t copied = 0;
    for (const RankFigures& r : f.ranks) {
        most_seen = std::max(most_seen, r.threads_seen);
        copied = std::max(copied, r.bytes_copied_up);
    }
    if (f.backend_kind == "host") {
        ledger.honour("device.threads",
                      std::to_string(f.ranks[0].threads) + " threads, of which up to " +
                          std::to_string(most_seen) + " were seen to compute",
                      f.deck.sections().device.threads == 0
                          ? "the node's cores shared between its ranks"
                          : "");
        ledger.honour("device.products", f.product, f.product_why);
    } else {
        ledger.honour("device.tf32", "products by " + f.product);
    }
    ledger.honour("fsdp.offload",
                  f.offload ? "weights lie in host memory: a rank copied up to " +
                                  std::to_string(copied / std::max<std::int64_t>(f.passes, 1)) +
                                  " bytes up a pass"
                            : "weights lie in the memory of the " + f.backend_kind);
    ledger.honour("fsdp.param_dtype",
                  std::string("weights are held") + (moves(f.transport) ? ", gathered" : "") +
                      " and multiplied as " + base::name_of(f.weights_seen),
                  f.param.why);
    ledger.honour("mesh.shard", std::to_string(f.topology.shard_size()) +
                                    " ranks in the shard group's communicator");
}

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
    std::int64_t largest = 0;
    std::int64_t pieces = 0;
    for (const shard::UnitSpec& unit : f.inputs.chain.units) {
        if (!unit.name.starts_with("layer.")) {
            largest = std::max(largest, base::bytes_of(unit.elements, base::DType::f32).count);
            ++pieces;
        }
    }
    const std::int64_t asked = f.deck.sections().fsdp.piece_bytes.count;
    if (asked > 0 && asked < base::bytes_of(f.inputs.config.width, base::DType::f32).count) {
        return; // clamped before the run
    }
    ledger.honour("fsdp.piece_bytes", std::to_string(pieces) + " pieces, the largest " +
                                          std::to_string(largest) + " bytes");
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
                            number(static_cast<double>(f.logits_scale), "%.9g"));
    honour("score.entropy", asked.entropy,
           rows + " stored, mean " +
               number(entropy / static_cast<double>(std::max<std::int64_t>(n, 1)), "%.6f") +
               " nat");
    honour("score.top_k", asked.top_k > 0,
           rows + " of " + std::to_string(asked.top_k) + " tokens stored");
    honour("score.hidden_states", asked.hidden_states,
           rows + " of " + std::to_string(f.inputs.config.width) + " numbers stored");
    honour("score.logits", asked.logits,
           rows + " of " + std::to_string(f.inputs.config.vocabulary) + " logits stored");
}

void settle_output(deck::Ledger& ledger, const RunFacts& f, const Aftermath& after) {
    const deck::OutputSection& o = f.deck.sections().output;
    ledger.honour("output.file", o.file);
    const std::string packs = std::to_string(f.inputs.packs.packs.size()) + " packs were there";
    ledger.honour("output.existing", after.resumed ? std::to_string(f.packs_before) + " of " + packs
                                     : after.replaced ? "a file was there and is replaced"
                                                      : "no file was there");
    std::int64_t flushes = 0;
    for (const RankFigures& r : f.ranks) {
        flushes = std::max(flushes, r.calls[phase_flush]);
    }
    ledger.honour("output.flush_every", std::to_string(flushes) + " times in " +
                                            number(run_seconds(f), "%.2f") + " s, and at the end");
    ledger.honour("output.timeline",
                  o.timeline ? std::to_string(after.spans_kept) + " spans kept" : "no spans kept");
    if (o.timeline) {
        ledger.honour("output.timeline_passes", "spans of " + std::to_string(after.passes_kept) +
                                                    " of " + std::to_string(f.passes) +
                                                    " passes kept");
    }
    if (o.require == "observed" && f.prefetch.verdict != schedule::Verdict::observed) {
        ledger.dishonour("output.require", "the verdict is " + name_of(f.prefetch.verdict),
                         f.prefetch.reason);
    } else {
        ledger.honour("output.require",
                      o.require == "none" ? "nothing was required" : "the verdict is observed");
    }
    ledger.honour("output.environment",
                  "variables that override keys: " + std::to_string(f.overrides.size()));
    if (o.log.empty()) {
        ledger.honour("output.log", "no log was asked for");
    } else {
        ledger.honour("output.log", std::to_string(after.lines_logged) + " lines in " + o.log);
    }
}

} // namespace

void settle_kind(deck::Ledger& ledger, const std::string& device_kind) {
    if (device_kind == "host") {
        ledger.inert("device.tf32", "the host multiplies fp32 as it is: device.kind = host");
        return;
    }
    for (const char* key : {"device.threads", "device.products"}) {
        ledger.inert(key, "the host computes nothing: device.kind = " + device_kind);
    }
}

void refuse_wide_heads(const deck::Deck& deck, int head_dim, backend::Backend& backend) {
    const int widest = backend.kernels().widest_head();
    if (head_dim > widest) {
        base::refuse(deck.where("model.weights") + ": heads of " + std::to_string(head_dim) +
                     ", but attention on " + backend.kind() + " takes at most " +
                     std::to_string(widest) + "; use device.kind = host");
    }
}

void judge_environment(const deck::Deck& deck, const std::vector<std::string>& overrides) {
    if (overrides.empty() || deck.sections().output.environment != "strict") {
        return;
    }
    std::string text = deck.where("output.environment") + " = strict:";
    for (const std::string& line : overrides) {
        text += "\n  " + line;
    }
    base::refuse(text + "\n  unset these, or set output.environment = warn");
}

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
    } else if (depth.units != s.fsdp.forward_prefetch) {
        ledger.clamp("fsdp.forward_prefetch", std::to_string(depth.units), depth.why);
    }
    if (s.data.window == 0) {
        ledger.inert("data.stride", "data.window = 0: documents are whole");
    }
    const base::Bytes row = base::bytes_of(inputs.config.width, base::DType::f32);
    if (s.fsdp.piece_bytes.count > 0 && s.fsdp.piece_bytes < row) {
        ledger.clamp("fsdp.piece_bytes", std::to_string(row.count) + " bytes",
                     "a row of the embedding is not cut");
    }
    if (transport.name == "none") {
        ledger.inert("comm.transport", why_nothing_moves(transport));
    } else if (transport.name == host_memory_transport) {
        ledger.inert("comm.transport", transport.why);
        ledger.inert("comm.link_rate", "copies from host memory are not slowed");
    }
    if (!s.output.timeline) {
        ledger.inert("output.timeline_passes", "output.timeline = false: no spans are kept");
    }
    const std::string& a = inputs.weights->tokenizer_sha256();
    const std::string& b = inputs.tokens->tokenizer_sha256();
    if (a.empty() || b.empty()) {
        ledger.inert("data.any_tokenizer",
                     "weights or tokens do not say which tokenizer they belong to");
    } else if (a == b && s.data.any_tokenizer) {
        ledger.inert("data.any_tokenizer", "weights and tokens belong to the same tokenizer");
    } else {
        ledger.honour("data.any_tokenizer",
                      a == b ? "both belong to tokenizer " + a.substr(0, 12)
                             : "tokenizers differ: " + a.substr(0, 12) + " and " + b.substr(0, 12));
    }
}

void settle_after(deck::Ledger& ledger, const RunFacts& facts, const Aftermath& after) {
    const deck::Sections& s = facts.deck.sections();
    ledger.honour("job.name",
                  "score: " + std::to_string(facts.summary.scored_tokens) + " tokens scored");
    ledger.honour("job.strict", std::to_string(ledger.inert_notes().size()) +
                                    " keys set that are inert, " +
                                    std::to_string(ledger.clamp_notes().size()) + " clamped");
    ledger.honour("job.title", std::to_string(s.job.title.size()) + " bytes stored as /title");
    settle_data(ledger, facts);
    settle_device(ledger, facts);
    settle_gathers(ledger, facts);
    settle_score(ledger, facts);
    settle_output(ledger, facts, after);
}

} // namespace foregather::job
