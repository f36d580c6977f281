// SPDX-License-Identifier: Apache-2.0
// Keys that mean the same in all jobs, and what was observed of them.
#include "settle_common.hpp"

#include <algorithm>
#include <cstdio>

#include <foregather/base/error.hpp>

namespace foregather::job {

std::string in_format(double value, const char* format) {
    char text[64];
    std::snprintf(text, sizeof(text), format, value);
    return text;
}

void settle_limit(deck::Ledger& ledger, const deck::Sections& sections, double seconds) {
    ledger.honour("job.max_time",
                  sections.job.max_time_s == 0
                      ? "no limit of its own"
                      : "the work was done in " + in_format(seconds, "%.1f") + " s");
}

void settle_prefetch(deck::Ledger& ledger, const char* key, const RunPrefetch& p,
                     const Depth& depth, int asked) {
    const std::string seen = "issued ahead " + std::to_string(p.issued_ahead) + ", begun ahead " +
                             in_format(p.worst.begun_ahead, "%.0f") + " (median), verdict " +
                             name_of(p.verdict);
    if (p.order_wrong) {
        ledger.dishonour(key, seen, p.reason);
    } else if (depth.automatic) {
        ledger.honour(key, "depth " + std::to_string(depth.units) + ": " + seen,
                      "auto became " + std::to_string(depth.units) + ": " + depth.why +
                          (p.reason.empty() ? "" : "; " + p.reason));
    } else if (depth.units == asked) { // else clamped before the run
        ledger.honour(key, seen, p.reason);
    }
}

void settle_gathers(deck::Ledger& ledger, const Seen& f) {
    const deck::Sections& s = f.deck.sections();
    double longest = 0;
    double silence = 0;
    double fastest = 0;
    for (const RankFigures& r : f.ranks) {
        longest = std::max(longest, r.longest_gather_s);
        silence = std::max({silence, r.longest_silence_s, r.longest_standstill_s});
        fastest = std::max(fastest, r.gather_bytes_per_s);
    }
    ledger.honour("comm.timeout", "longest gather " + in_format(longest, "%.3f") +
                                      " s, longest silence of a rank or of file work " +
                                      in_format(silence, "%.1f") + " s");
    const bool from_ranks = f.transport.name != "none" && f.transport.name != host_memory_transport;
    if (from_ranks && s.bench.transports.empty()) {
        ledger.honour("comm.transport", f.transport_seen, f.transport.why);
    }
    if (!moves(f.transport)) {
        return;
    }
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
                      "off: gathers ran at up to " + in_format(fastest * 8e-9, "%.3g") + " Gb/s");
    } else if (fastest > 1.001 * s.comm.link_rate_bytes_per_s) {
        ledger.dishonour("comm.link_rate", in_format(fastest * 8e-9, "%.4g") + " Gb/s",
                         "gathers ran faster than the emulated link");
    } else {
        ledger.honour("comm.link_rate", "gathers ran at " + in_format(fastest * 8e-9, "%.4g") +
                                            " Gb/s of received bytes, an emulation");
    }
}

void settle_device(deck::Ledger& ledger, const Seen& f) {
    ledger.honour("device.kind", f.backend_kind, f.backend_why);
    std::int64_t most_seen = 0;
    for (const RankFigures& r : f.ranks) {
        most_seen = std::max(most_seen, r.threads_seen);
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
    ledger.honour("fsdp.param_dtype",
                  std::string("weights are held") + (moves(f.transport) ? ", gathered" : "") +
                      " and multiplied as " + base::name_of(f.weights_seen),
                  f.param.why);
    ledger.honour("mesh.shard", std::to_string(f.topology.shard_size()) +
                                    " ranks in the shard group's communicator");
}

void settle_pieces(deck::Ledger& ledger, const deck::Deck& deck, const model::Chain& chain,
                   const model::ModelConfig& config) {
    std::int64_t largest = 0;
    std::int64_t pieces = 0;
    for (const shard::UnitSpec& unit : chain.units) {
        if (!unit.name.starts_with("layer.")) {
            largest = std::max(largest, base::bytes_of(unit.elements, base::DType::f32).count);
            ++pieces;
        }
    }
    const base::Bytes asked = deck.sections().fsdp.piece_bytes;
    if (asked.count == 0 || asked >= base::bytes_of(config.width, base::DType::f32)) {
        ledger.honour("fsdp.piece_bytes", std::to_string(pieces) + " pieces, the largest " +
                                              std::to_string(largest) + " bytes");
    } // else clamped before the run
}

void settle_cut(deck::Ledger& ledger, const deck::Deck& deck, const model::ModelConfig& config) {
    const base::Bytes row = base::bytes_of(config.width, base::DType::f32);
    const base::Bytes asked = deck.sections().fsdp.piece_bytes;
    if (asked.count > 0 && asked < row) {
        ledger.clamp("fsdp.piece_bytes", std::to_string(row.count) + " bytes",
                     "a row of the embedding is not cut");
    }
}

void settle_tokenizers(deck::Ledger& ledger, const deck::Deck& deck, const std::string& a,
                       const std::string& b) {
    if (a.empty() || b.empty()) {
        ledger.inert("data.any_tokenizer",
                     "weights or tokens do not say which tokenizer they belong to");
    } else if (a == b && deck.sections().data.any_tokenizer) {
        ledger.inert("data.any_tokenizer", "weights and tokens belong to the same tokenizer");
    } else {
        ledger.honour("data.any_tokenizer",
                      a == b ? "both belong to tokenizer " + a.substr(0, 12)
                             : "tokenizers differ: " + a.substr(0, 12) + " and " + b.substr(0, 12));
    }
}

void settle_output(deck::Ledger& ledger, const Seen& f, const OutputSeen& seen) {
    const deck::OutputSection& o = f.deck.sections().output;
    ledger.honour("output.file", o.file);
    ledger.honour("output.existing", seen.existing);
    if (deck::known_key("output.flush_every").serves(f.deck.sections().job.name)) {
        std::int64_t flushes = 0;
        for (const RankFigures& r : f.ranks) {
            flushes = std::max(flushes, r.calls[phase_flush]);
        }
        ledger.honour("output.flush_every", std::to_string(flushes) + " times in " +
                                                in_format(spread(f.ranks, phase_run).max, "%.2f") +
                                                " s, and at the end");
    }
    ledger.honour("output.timeline",
                  o.timeline ? std::to_string(seen.spans_kept) + " spans kept" : "no spans kept");
    if (o.timeline) {
        ledger.honour("output.timeline_passes", "spans of " + std::to_string(seen.passes_kept) +
                                                    " of " + std::to_string(seen.passes) +
                                                    " passes kept");
    }
    if (o.require == "observed" && !seen.observed) {
        ledger.dishonour("output.require", seen.verdict, seen.reason);
    } else {
        ledger.honour("output.require",
                      o.require == "none" ? "nothing was required" : "the verdict is observed");
    }
    std::string overrides;
    for (const std::string& line : f.overrides) {
        overrides += (overrides.empty() ? "" : "; ") + line;
    }
    ledger.honour("output.environment",
                  "variables that override keys: " + std::to_string(f.overrides.size()), overrides);
    if (o.log.empty()) {
        ledger.honour("output.log", "no log was asked for");
    } else {
        ledger.honour("output.log", std::to_string(seen.lines_logged) + " lines in " + o.log);
    }
}

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

} // namespace foregather::job
