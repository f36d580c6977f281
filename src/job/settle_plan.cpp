// SPDX-License-Identifier: Apache-2.0
// What each key of a plan came to.
#include "settle_plan.hpp"

#include <algorithm>

#include "report_parts.hpp"
#include "settle_common.hpp"

namespace foregather::job {
namespace {

bool used(const std::vector<std::string>& keys, const char* key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::string list_text(const std::vector<std::int64_t>& list) {
    std::string text;
    for (const std::int64_t entry : list) {
        text += (text.empty() ? "" : ", ") + std::to_string(entry);
    }
    return text;
}

void settle_machine(deck::Ledger& ledger, const PlanFacts& f) {
    const deck::Sections& s = f.deck.sections();
    ledger.honour("machine.kind", f.source.kind() + ": memory and types are counted as there",
                  s.plan.measured.empty() ? "" : "as measured");
    ledger.honour("machine.name", s.machine.name.empty() ? "none" : "stored with the plan");
    ledger.honour("machine.memory",
                  s.machine.memory.given()
                      ? "judged " + counted(std::ssize(f.sweep.rows), "row", "rows")
                      : "not given: whether a plan fits is unknown");
    for (const std::string& key : f.source.keys()) {
        const std::string plain = f.deck.plain(key); // "0.65, assumed: where from"
        const std::string unit = deck::known_key(key).unit;
        ledger.honour(key, plain.substr(0, plain.find(',')) + (unit.empty() ? "" : " " + unit) +
                               plain.substr(plain.find(','), plain.find(':') - plain.find(',')));
    }
}

} // namespace

void settle_plan_before(deck::Ledger& ledger, const deck::Deck& deck, const PlannedModel& model,
                        const TimeSource& source) {
    const deck::Sections& s = deck.sections();
    if (!model.trains) {
        for (const char* key : {"train.accumulate", "train.recompute", "fsdp.reduce_dtype",
                                "fsdp.reshard_after_forward"}) {
            ledger.inert(key, "plan.job = score: nothing is trained");
        }
    }
    settle_cut(ledger, deck, model.config);
    const std::vector<std::string> keys = source.keys();
    for (const deck::KeyInfo& info : deck::known_keys()) {
        if (!info.key.starts_with("machine.") || info.key == "machine.name" ||
            info.key == "machine.kind" || info.key == "machine.memory" ||
            used(keys, info.key.c_str())) {
            continue;
        }
        const bool network = info.key.find("network") != std::string::npos;
        ledger.inert(info.key,
                     !s.plan.measured.empty() ? "plan.measured: times were measured"
                     : network                ? "all ranks of plan.ranks are on one node"
                               : std::string("products are ") + base::name_of(source.weights()));
    }
}

void settle_plan_after(deck::Ledger& ledger, const PlanFacts& f, bool replaced) {
    const deck::Sections& s = f.deck.sections();
    const std::string rows = counted(std::ssize(f.sweep.rows), "setting", "settings");
    ledger.honour("job.name", "plan: " + rows);
    ledger.honour("job.strict", counted(std::ssize(ledger.inert_notes()), "key", "keys") +
                                    " set that are inert, " +
                                    std::to_string(ledger.clamp_notes().size()) + " clamped");
    ledger.honour("job.title", std::to_string(s.job.title.size()) + " bytes stored as /title");
    ledger.honour("plan.job", "passes of " + s.plan.job);
    ledger.honour("plan.model", f.model.path + ": " +
                                    counted(f.model.config.layers, "layer", "layers") +
                                    " of width " + std::to_string(f.model.config.width));
    ledger.honour("plan.machine", s.plan.machine.empty() ? "none" : s.machine.name);
    ledger.honour("plan.measured", s.plan.measured.empty() ? "none"
                                   : f.source.emulated_rate() > 0
                                       ? s.plan.measured + ", on an EMULATED link"
                                       : s.plan.measured);
    ledger.honour("plan.ranks", list_text(s.plan.ranks) + ": " + rows);
    ledger.honour("plan.shards", list_text(shards_of(s.plan)) + ": " + rows);
    ledger.honour("plan.depths", list_text(s.plan.depths) + ": " + rows);
    ledger.honour("plan.tokens", list_text(s.plan.tokens) + ": " + rows);
    std::int64_t longest = 0, slots = 0, most = 0;
    for (const PlanRow& row : f.sweep.rows) {
        longest = std::max(longest, row.setting.load.document);
        slots = std::max<std::int64_t>(slots, row.slots);
        most = std::max(most, row.slots * row.slot_bytes.count);
    }
    ledger.honour("plan.document", "documents of up to " + counted(longest, "token", "tokens"));
    ledger.honour("plan.published",
                  s.plan.published ? "published figures printed" : "none printed");
    settle_machine(ledger, f);
    ledger.honour("fsdp.param_dtype",
                  std::string("weights are gathered and multiplied as ") +
                      base::name_of(f.source.weights()),
                  s.fsdp.param_dtype != "auto" ? "asked for"
                  : s.plan.machine.empty()     ? "as measured"
                                               : "machine.kind = " + s.machine.kind);
    settle_pieces(ledger, f.deck, f.model.chain, f.model.config);
    ledger.honour("fsdp.gather_memory", "up to " + counted(slots, "slot", "slots") + ", " +
                                            std::to_string(most) + " bytes");
    if (f.model.trains) {
        ledger.honour("fsdp.reshard_after_forward",
                      "up to " + counted(slots, "slot", "slots") + " for " +
                          counted(std::ssize(f.model.chain.units), "unit", "units"));
        ledger.honour("fsdp.reduce_dtype", "gradients travel as " + s.fsdp.reduce_dtype);
        ledger.honour("train.accumulate",
                      counted(f.sweep.rows.front().passes, "pass", "passes") + " in a step");
        ledger.honour("train.recompute", s.train.recompute == "layer"
                                             ? "layers are computed again in backward"
                                             : "all of forward is kept");
    }
    ledger.honour("output.file", s.output.file);
    ledger.honour("output.existing",
                  replaced ? "a file was there and is replaced" : "no file was there");
}

} // namespace foregather::job
