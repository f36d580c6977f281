// SPDX-License-Identifier: Apache-2.0
// What each key of a training run came to.
#include "settle_train.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <foregather/base/error.hpp>
#include <foregather/io/checkpoint_folder.hpp>

#include "shard_ranges.hpp"

namespace foregather::job {

std::vector<InertKey> inert_training_keys(const deck::Sections& s) {
    std::vector<InertKey> inert;
    const auto say = [&](bool is, const char* key, const std::string& reason) {
        if (is) {
            inert.push_back({key, reason});
        }
    };
    const deck::TrainSection& t = s.train;
    const deck::CheckpointSection& c = s.checkpoint;
    say(!s.model.weights.empty(), "model.init_seed", "model.weights is given: nothing is random");
    say(t.schedule == "constant", "train.min_learning_rate",
        "train.schedule = constant: the learning rate does not go down");
    say(t.weight_decay == 0, "train.decay", "train.weight_decay = 0: nothing decays");
    say(t.batch_documents > 0, "train.accumulate",
        "train.batch_documents = " + std::to_string(t.batch_documents) +
            ": a step has as many packs as these need");
    say(!t.shuffle, "train.seed", "train.shuffle = false: documents come in the file's order");
    say(t.evaluate.empty(), "train.evaluate_every",
        "train.evaluate is empty: nothing is evaluated");
    const std::string none = "checkpoint.directory is empty: none is written";
    say(c.directory.empty(), "checkpoint.every", none);
    say(c.directory.empty(), "checkpoint.keep", none);
    const bool nowhere = c.directory.empty() && c.resume == "auto";
    say(nowhere, "checkpoint.resume",
        "checkpoint.directory is empty: there is nothing to look for");
    say(nowhere || c.resume == "none", "checkpoint.load_optimizer",
        "the run goes on from no checkpoint");
    say(!s.output.timeline, "output.timeline_passes", "output.timeline = false: no spans are kept");
    return inert;
}

namespace {

// Where nothing is gathered, and where nothing is reduced either.
void settle_movement(deck::Ledger& ledger, const deck::Deck& deck, const TrainChoices& c) {
    const deck::Sections& s = deck.sections();
    if (moves(c.transport)) {
        if (!c.schedule.forward.automatic && c.schedule.forward.units != s.fsdp.forward_prefetch) {
            ledger.clamp("fsdp.forward_prefetch", std::to_string(c.schedule.forward.units),
                         c.schedule.forward.why);
        }
        if (!s.fsdp.reshard_after_forward) {
            ledger.inert("fsdp.backward_prefetch",
                         "fsdp.reshard_after_forward = false: backward finds all units where "
                         "forward left them");
        } else if (!c.schedule.backward.automatic &&
                   c.schedule.backward.units != s.fsdp.backward_prefetch) {
            ledger.clamp("fsdp.backward_prefetch", std::to_string(c.schedule.backward.units),
                         c.schedule.backward.why);
        }
        return;
    }
    const std::string why = why_nothing_moves(c.transport);
    for (const char* key : {"fsdp.forward_prefetch", "fsdp.backward_prefetch",
                            "fsdp.reshard_after_forward", "fsdp.gather_memory"}) {
        ledger.inert(key, why);
    }
    if (c.transport.name == "none") {
        ledger.inert("comm.transport", why);
        ledger.inert("fsdp.reduce_dtype", "one rank holds all weights: its gradients are not sent, "
                                          "and sums over replicas are fp32");
        if (c.replicas == 1) {
            ledger.inert("comm.link_rate", why);
        }
    }
    if (s.output.require == "observed") {
        base::refuse(deck.where("output.require") + " = observed cannot be met: " + why);
    }
}

// Parameters that decay, and all, over the ranks of one replica.
std::pair<std::int64_t, std::int64_t> decaying_elements(const TrainFacts& f) {
    const Decay decay = f.deck.sections().train.decay == "all" ? Decay::all : Decay::matrices;
    std::int64_t decaying = 0;
    std::int64_t all = 0;
    for (const shard::UnitSpec& unit : f.chain.units) {
        for (const ShardRange& range :
             shard_ranges(unit, shard::ShardLayout(unit.elements, 1), 0, decay)) {
            all += range.elements.size();
            decaying += range.decays ? range.elements.size() : 0;
        }
    }
    return {decaying, all};
}

std::string step_count(const TrainFacts& f) {
    return std::to_string(f.state.step) + " steps taken, " + std::to_string(f.step_seconds.size()) +
           " of them by this start";
}

void settle_optimizer(deck::Ledger& ledger, const TrainFacts& f, const kernels::AdamwStep& seen) {
    const deck::TrainSection& t = f.deck.sections().train;
    const io::LossHistory& h = f.state.history;
    const std::size_t n = h.step.size();
    const std::size_t first = n - f.step_seconds.size(); // of this start
    std::int64_t clipped = 0;
    double lowest = 0;
    double highest = 0;
    int rises = 0;
    for (std::size_t i = first; i < n; ++i) {
        clipped += t.gradient_clip_norm > 0 && h.gradient_norm[i] > t.gradient_clip_norm ? 1 : 0;
        lowest = i == first ? h.learning_rate[i] : std::min(lowest, h.learning_rate[i]);
        highest = std::max(highest, h.learning_rate[i]);
        rises += i > 0 && h.learning_rate[i] > h.learning_rate[i - 1] ? 1 : 0;
    }
    const std::string rates = "rates of " + in_format(lowest, "%.6g") + " to " +
                              in_format(highest, "%.6g") + ", " +
                              in_format(h.learning_rate[n - 1], "%.6g") + " at the end";
    ledger.honour("train.steps", step_count(f));
    ledger.honour("train.learning_rate", rates);
    ledger.honour("train.schedule", rates);
    ledger.honour("train.warmup_steps",
                  "the rate rose " + std::to_string(rises) + " times; " + rates);
    if (t.schedule != "constant") {
        ledger.honour("train.min_learning_rate", rates);
    }
    const std::string updates =
        std::to_string(f.state.updates) + " updates of both moments by AdamW with ";
    ledger.honour("train.beta1", updates + in_format(seen.beta1, "%.9g"));
    ledger.honour("train.beta2", updates + in_format(seen.beta2, "%.9g"));
    ledger.honour("train.epsilon", updates + in_format(seen.epsilon, "%.9g"));
    const auto [decaying, all] = decaying_elements(f);
    const std::string decays =
        std::to_string(decaying) + " of " + std::to_string(all) + " parameters decay";
    ledger.honour("train.weight_decay",
                  t.weight_decay == 0
                      ? "nothing decays"
                      : decays + " by " + in_format(seen.weight_decay, "%.9g") + " x rate a step");
    if (t.weight_decay != 0) {
        ledger.honour("train.decay", decays);
    }
    ledger.honour("train.gradient_clip_norm", t.gradient_clip_norm == 0
                                                  ? "off: no gradient was scaled"
                                                  : std::to_string(clipped) + " of " +
                                                        std::to_string(n - first) +
                                                        " steps were scaled down");
    std::int64_t not_applied = 0;
    for (std::size_t i = first; i < n; ++i) {
        not_applied += std::isfinite(h.loss[i]) && std::isfinite(h.gradient_norm[i]) ? 0 : 1;
    }
    ledger.honour("train.max_bad_steps", std::to_string(not_applied) + " steps were not applied, " +
                                             std::to_string(f.state.bad_steps) +
                                             " in a row at the end");
}

void settle_batches(deck::Ledger& ledger, const TrainFacts& f, const TrainInputs& inputs,
                    const TrainSeen& seen) {
    const deck::Sections& s = f.deck.sections();
    std::int64_t passes = 0;
    std::int64_t packs = 0;
    std::int64_t longest_pack = 0;
    for (const RankFigures& r : f.ranks) {
        passes = std::max(passes, r.train.passes);
        packs += r.packs;
        longest_pack = std::max(longest_pack, r.train.longest_pack);
    }
    const std::string items =
        std::to_string(inputs.items.items.size()) + (s.data.window > 0 ? " windows" : " documents");
    ledger.honour("batch.tokens", std::to_string(packs) + " packs of up to " +
                                      std::to_string(longest_pack) + " tokens");
    if (s.train.batch_documents == 0) {
        ledger.honour("train.accumulate", std::to_string(passes) + " passes of a rank in " +
                                              std::to_string(f.step_seconds.size()) + " steps");
    }
    const BatchesSeen& b = seen.batches;
    ledger.honour("train.batch_documents",
                  "steps of up to " + std::to_string(b.largest) + " of " + items +
                      (s.train.batch_documents > 0
                           ? ""
                           : ", what fills " + std::to_string(seen.packs_of_a_batch) + " packs"));
    ledger.honour("train.shuffle", std::to_string(b.steps_back) + " of " + std::to_string(b.items) +
                                       " that were taken lie before the one taken before them; " +
                                       std::to_string(f.state.epoch) + " epochs ended");
    if (s.train.shuffle) {
        std::string documents;
        for (const std::int64_t document : b.first) {
            documents += (documents.empty() ? "" : ", ") + std::to_string(document);
        }
        ledger.honour("train.seed", "this start began with documents " + documents);
    }
    ledger.honour("train.recompute",
                  "activations of " + std::to_string(seen.activations.count) + " bytes held");
    const bool evaluates = inputs.evaluation != nullptr;
    ledger.honour("train.evaluate",
                  evaluates ? std::to_string(f.state.evaluations.step.size()) + " evaluations of " +
                                  std::to_string(inputs.evaluation_items.targets) + " tokens"
                            : "nothing is evaluated");
    if (evaluates) {
        ledger.honour("train.evaluate_every", std::to_string(f.state.evaluations.step.size()) +
                                                  " evaluations in " +
                                                  std::to_string(f.state.step) + " steps");
    }
}

void settle_checkpoints(deck::Ledger& ledger, const TrainFacts& f, const TrainSeen& seen) {
    const deck::CheckpointSection& c = f.deck.sections().checkpoint;
    const std::string saves = std::to_string(f.saved.size()) + " checkpoints written";
    ledger.honour("checkpoint.directory",
                  c.directory.empty() ? "none is written" : saves + " to " + c.directory);
    if (!c.directory.empty()) {
        ledger.honour("checkpoint.every",
                      saves + " in " + std::to_string(f.step_seconds.size()) + " steps");
        ledger.honour("checkpoint.keep", std::to_string(io::count_checkpoints(c.directory)) +
                                             " checkpoints are there at the end");
    }
    const bool nowhere = c.directory.empty() && c.resume == "auto";
    if (!nowhere) {
        ledger.honour("checkpoint.resume", f.began_with);
    }
    if (!nowhere && c.resume != "none") {
        ledger.honour("checkpoint.load_optimizer",
                      seen.loaded.empty() ? "no checkpoint was there" : seen.loaded);
    }
}

void settle_train_data(deck::Ledger& ledger, const TrainFacts& f, const TrainInputs& in) {
    const deck::Sections& s = f.deck.sections();
    const std::string parameters = std::to_string(decaying_elements(f).second) + " parameters in " +
                                   std::to_string(f.chain.units.size()) + " units";
    ledger.honour("model.weights", in.weights ? in.weights->path() + ": " +
                                                    std::to_string(in.weights->tensors().size()) +
                                                    " tensors"
                                              : "not given");
    ledger.honour("model.config",
                  in.weights ? "that of the weights" : in.config_path + ": " + parameters);
    if (!in.weights) {
        ledger.honour("model.init_seed", f.first_step > 1
                                             ? f.began_with
                                             : "random weights, whose loss was " +
                                                   in_format(f.state.history.loss.front(), "%.9g") +
                                                   " in the first step");
    }
    ledger.honour("data.tokens", in.tokens->path() + ": " + std::to_string(in.tokens->tokens()) +
                                     " tokens, " + std::to_string(in.items.targets) + " targets");
    ledger.honour("data.max_documents",
                  std::to_string(s.data.max_documents == 0
                                     ? in.tokens->documents()
                                     : std::min(s.data.max_documents, in.tokens->documents())) +
                      " of " + std::to_string(in.tokens->documents()) + " documents");
    ledger.honour("data.window", s.data.window == 0
                                     ? "documents are whole, the longest of " +
                                           std::to_string(in.items.longest) + " tokens"
                                     : std::to_string(in.items.items.size()) +
                                           " windows, the longest of " +
                                           std::to_string(in.items.longest) + " tokens");
}

// What links carried: gathers, or where there are none, reductions.
void settle_link(deck::Ledger& ledger, const TrainFacts& f) {
    if (moves(f.transport) || (f.transport.name == "none" && f.topology.replicas() == 1)) {
        return; // with the gathers, or inert
    }
    double fastest = 0;
    for (const RankFigures& r : f.ranks) {
        fastest = std::max(fastest, r.train.reduce_bytes_per_s);
    }
    const double rate = f.deck.sections().comm.link_rate_bytes_per_s;
    const std::string seen =
        "reductions ran at up to " + in_format(fastest * 8e-9, "%.4g") + " Gb/s";
    if (rate > 0 && fastest > 1.001 * rate) {
        ledger.dishonour("comm.link_rate", seen, "reductions ran faster than the emulated link");
    } else {
        ledger.honour("comm.link_rate",
                      rate > 0 ? seen + " of received bytes, an emulation" : "off: " + seen);
    }
}

} // namespace

void BatchesSeen::take(const Batch& batch, const Items& of) {
    constexpr std::size_t most_told = 4;
    for (const std::int64_t item : batch.items) {
        steps_back += item < last ? 1 : 0;
        last = item;
        if (first.size() < most_told) {
            first.push_back(of.items[static_cast<std::size_t>(item)].document);
        }
    }
    items += std::ssize(batch.items);
    largest = std::max<std::int64_t>(largest, std::ssize(batch.items));
}

void settle_training_deck(deck::Ledger& ledger, const deck::Deck& deck) {
    for (const InertKey& inert : inert_training_keys(deck.sections())) {
        ledger.inert(inert.key, inert.reason);
    }
}

void settle_train_before(deck::Ledger& ledger, const deck::Deck& deck, const TrainChoices& chosen) {
    if (deck.sections().fsdp.offload != "none") {
        base::refuse(deck.where("fsdp.offload") + " = " + deck.sections().fsdp.offload +
                     ": training keeps weights and optimizer in the device's memory; use "
                     "fsdp.offload = none and more ranks");
    }
    settle_training_deck(ledger, deck);
    settle_kind(ledger, chosen.device_kind);
    settle_movement(ledger, deck, chosen);
    settle_cut(ledger, deck, chosen.inputs.config);
    settle_tokenizers(ledger, deck, chosen.inputs.tokenizer_sha256,
                      chosen.inputs.tokens->tokenizer_sha256());
}

void settle_train_after(deck::Ledger& ledger, const TrainFacts& facts, const TrainInputs& inputs,
                        const Seen& seen, const OutputSeen& output, const TrainSeen& train) {
    const deck::FsdpSection& fsdp = facts.deck.sections().fsdp;
    ledger.honour("job.name", "train: " + step_count(facts));
    ledger.honour("job.strict", std::to_string(ledger.inert_notes().size()) +
                                    " keys set that are inert, " +
                                    std::to_string(ledger.clamp_notes().size()) + " clamped");
    settle_limit(ledger, facts.deck.sections(),
                 std::accumulate(facts.step_seconds.begin(), facts.step_seconds.end(), 0.0));
    ledger.honour("job.title", std::to_string(facts.deck.sections().job.title.size()) +
                                   " bytes stored as /title");
    settle_train_data(ledger, facts, inputs);
    settle_device(ledger, seen);
    ledger.honour("fsdp.offload",
                  "weights and optimizer lie in the memory of the " + facts.backend_kind);
    settle_gathers(ledger, seen);
    settle_link(ledger, facts);
    if (moves(facts.transport)) {
        settle_prefetch(ledger, "fsdp.forward_prefetch", facts.forward, facts.schedule.forward,
                        fsdp.forward_prefetch);
        const double gathers = static_cast<double>(facts.backward.gathers);
        ledger.honour("fsdp.reshard_after_forward",
                      in_format(gathers, "%.0f") + " gathers of a rank for backward, " +
                          std::to_string(facts.forward.gathers) + " for forward");
        if (fsdp.reshard_after_forward) {
            settle_prefetch(ledger, "fsdp.backward_prefetch", facts.backward,
                            facts.schedule.backward, fsdp.backward_prefetch);
        }
    }
    if (facts.transport.name != "none") {
        std::int64_t bytes = 0;
        for (const RankFigures& r : facts.ranks) {
            bytes = std::max(bytes, r.train.bytes_reduced);
        }
        ledger.honour("fsdp.reduce_dtype", std::string("reduced as ") +
                                               base::name_of(facts.reduced_as) + ", " +
                                               std::to_string(bytes) + " bytes received by a rank");
    }
    settle_pieces(ledger, facts.deck, facts.chain, facts.config);
    settle_optimizer(ledger, facts, train.optimizer);
    settle_batches(ledger, facts, inputs, train);
    settle_checkpoints(ledger, facts, train);
    settle_output(ledger, seen, output);
}

} // namespace foregather::job
