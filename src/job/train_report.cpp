// SPDX-License-Identifier: Apache-2.0
// The table that users read when a training run is over, in the order in which they ask: what ran,
// where the time went, what prefetch and reductions did, memory, speed, what was learned, what is
// kept, what to change.
#include "train_report.hpp"

#include <algorithm>
#include <cmath>

namespace foregather::job {
namespace {

constexpr const char* inner = "           "; // under a label

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return values.size() % 2 == 1 ? *middle
                                  : (*middle + *std::max_element(values.begin(), middle)) / 2;
}

template <class Of>
double sum_over(const std::vector<RankFigures>& ranks, const Of& of) {
    double sum = 0;
    for (const RankFigures& r : ranks) {
        sum += static_cast<double>(of(r));
    }
    return sum;
}

double mean_over(const std::vector<RankFigures>& ranks, Phase phase) {
    return spread(ranks, phase).mean;
}

// Evaluations are not training.
double training_seconds(const TrainFacts& f) {
    double most = 0;
    for (const RankFigures& r : f.ranks) {
        most = std::max(most, r.seconds[phase_run] - r.seconds[phase_evaluate]);
    }
    return most;
}

std::vector<PrefetchTold> directions(const TrainFacts& f) {
    const deck::FsdpSection& asked = f.deck.sections().fsdp;
    const auto inert = [&](const std::string& of_slots) {
        return f.step_seconds.empty() ? "no step was left to be taken"
               : moves(f.transport)   ? of_slots
                                      : why_nothing_moves(f.transport);
    };
    return {{"forward", "fsdp.forward_prefetch", f.forward, asked.forward_prefetch,
             f.schedule.forward, f.memory.slots, f.memory.slot_bytes,
             inert("all units stay in their slots")},
            {"backward", "fsdp.backward_prefetch", f.backward, asked.backward_prefetch,
             f.schedule.backward, f.memory.slots, f.memory.slot_bytes,
             inert(asked.reshard_after_forward ? "all units stay in their slots"
                                               : "fsdp.reshard_after_forward = false: backward "
                                                 "finds all units where forward left them")}};
}

std::string reductions(const TrainFacts& f) {
    std::int64_t most = 0;
    std::int64_t replicas = 0;
    for (const RankFigures& r : f.ranks) {
        most = std::max(most, r.train.reductions);
        replicas = std::max(replicas, r.train.replica_reductions);
    }
    const double bytes = sum_over(f.ranks, [](const auto& r) { return r.train.bytes_reduced; });
    const double overlapped =
        sum_over(f.ranks, [](const auto& r) { return r.train.reduce_overlapped_s; }) /
        static_cast<double>(std::max<std::size_t>(f.ranks.size(), 1));
    return text_line("reduce     as %s: %lld a rank in its shard group, %lld over replicas, %s "
                     "from other ranks (all ranks)",
                     base::name_of(f.reduced_as), static_cast<long long>(most),
                     static_cast<long long>(replicas),
                     in_words(base::Bytes{static_cast<std::int64_t>(bytes)}).c_str()) +
           text_line("%sexposed %.3f s, overlapped %.3f s (means)", inner,
                     mean_over(f.ranks, phase_exposed_reduce), overlapped);
}

std::string speed(const TrainFacts& f) {
    const auto& steps = f.step_seconds;
    return text_line("speed      %zu steps, %.0f tokens, %.3f s: %.1f tokens/s, %.1f GFLOP/s of "
                     "the model; first compute after %.2f s",
                     steps.size(), sum_over(f.ranks, [](const auto& r) { return r.tokens; }),
                     training_seconds(f), train_tokens_per_second(f),
                     1e-9 * train_flop_per_second(f), f.first_compute_s) +
           text_line("%sa step %.3f s (median), %.3f s the longest", inner, median(steps),
                     steps.empty() ? 0.0 : *std::max_element(steps.begin(), steps.end()));
}

bool applied(const io::LossHistory& h, std::size_t i) {
    return std::isfinite(h.loss[i]) && std::isfinite(h.gradient_norm[i]);
}

// Of all starts.
std::string learned(const TrainFacts& f) {
    const io::LossHistory& h = f.state.history;
    if (h.step.empty()) {
        return "loss       no step was taken\n";
    }
    const double limit = f.deck.sections().train.gradient_clip_norm;
    std::vector<double> norms;
    std::size_t lowest = h.step.size();
    std::int64_t clipped = 0;
    std::string not_applied;
    for (std::size_t i = 0; i < h.step.size(); ++i) {
        if (!applied(h, i)) {
            not_applied += (not_applied.empty() ? "" : ", ") + std::to_string(h.step[i]);
            continue;
        }
        lowest = lowest == h.step.size() || h.loss[i] < h.loss[lowest] ? i : lowest;
        clipped += limit > 0 && h.gradient_norm[i] > limit ? 1 : 0;
        norms.push_back(h.gradient_norm[i]);
    }
    const auto step = [&](std::size_t i) { return static_cast<long long>(h.step[i]); };
    std::string text = text_line("loss       %.6f nat at step %lld, %.6f at step %lld", h.loss[0],
                                 step(0), h.loss.back(), step(h.step.size() - 1));
    if (!norms.empty()) {
        text += text_line("%slowest %.6f at step %lld", inner, h.loss[lowest], step(lowest));
        text += text_line("norm       %.6g (median), %.6g the largest", median(norms),
                          *std::max_element(norms.begin(), norms.end()));
        text += limit > 0 ? text_line("%s%lld of %zu steps clipped to %g", inner,
                                      static_cast<long long>(clipped), norms.size(), limit)
                          : std::string(inner) + "not clipped: train.gradient_clip_norm = 0\n";
    }
    if (!not_applied.empty()) {
        text += "not applied  loss or norm was not finite: steps " + not_applied + "\n";
    }
    return text;
}

std::string evaluations(const TrainFacts& f) {
    const io::EvaluationHistory& e = f.state.evaluations;
    if (e.step.empty()) {
        return "";
    }
    const auto low = std::min_element(e.loss.begin(), e.loss.end()) - e.loss.begin();
    return text_line("evaluation %.6f nat at step %lld over %lld tokens; %zu in all, the lowest "
                     "%.6f at step %lld",
                     e.loss.back(), static_cast<long long>(e.step.back()),
                     static_cast<long long>(e.tokens.back()), e.step.size(),
                     e.loss[static_cast<std::size_t>(low)],
                     static_cast<long long>(e.step[static_cast<std::size_t>(low)]));
}

std::string kept(const TrainFacts& f) {
    if (f.saved.empty()) {
        return f.deck.sections().checkpoint.directory.empty()
                   ? "saved      nothing: checkpoint.directory is not set, and the weights are "
                     "gone\n"
                   : "saved      nothing in this start\n";
    }
    double seconds = 0;
    for (const Checkpoints::Saved& saved : f.saved) {
        seconds += saved.seconds;
    }
    return text_line("saved      %zu checkpoints of %s, %.3f s each (mean)", f.saved.size(),
                     in_words(f.saved.back().file).c_str(),
                     seconds / static_cast<double>(f.saved.size())) +
           "           the last " + f.saved.back().path + "\n";
}

} // namespace

void measure_training(RankFigures& f, const TrainMeasured& run) {
    take(f, run.source.figures(schedule::Direction::forward), schedule::Direction::forward);
    take(f, run.source.figures(schedule::Direction::backward), schedule::Direction::backward);
    take(f, run.reducer.figures());
    if (f.calls[phase_product] > 0) {
        f.calls[phase_product] = f.calls[phase_compute] + f.calls[phase_backward_compute];
    }
    f.issued = run.source.issued() + (run.evaluation != nullptr ? run.evaluation->issued() : 0);
    f.waited = run.source.waited() + (run.evaluation != nullptr ? run.evaluation->waited() : 0);
    f.freed = run.source.freed() + (run.evaluation != nullptr ? run.evaluation->freed() : 0);
    const LoopFigures& loop = run.loop;
    f.packs = loop.packs;
    f.tokens = loop.tokens;
    f.scored = loop.targets;
    f.allocations_while_running = loop.allocations;
    f.train.steps = loop.steps;
    f.train.passes = loop.passes;
    f.train.attended = loop.attended;
    f.train.longest_pack = loop.longest_pack;
    for (const comm::Communicator* c : run.reductions) {
        const double busy_s = c->gathers_done() > 0 ? c->busy_s() : run.reducer.figures().reduce_s;
        const std::int64_t bytes = c->gathers_done() > 0 ? c->bytes_received().count
                                                         : run.reducer.figures().received.count;
        if (busy_s > 0) {
            f.train.reduce_bytes_per_s =
                std::max(f.train.reduce_bytes_per_s, static_cast<double>(bytes) / busy_s);
        }
    }
    const auto phase = [&](Phase which, double seconds, std::int64_t calls) {
        f.seconds[which] = seconds;
        f.calls[which] = calls;
    };
    phase(phase_optimizer, loop.optimizer_s, loop.steps - loop.not_applied);
    phase(phase_evaluate, loop.evaluate_s, loop.evaluations);
    phase(phase_wait, loop.wait_s, loop.passes);
    phase(phase_step_wait, loop.step_wait_s, loop.steps);
    phase(phase_run, loop.run_s, loop.steps);
    if (run.checkpoints != nullptr) {
        phase(phase_save, run.checkpoints->save_seconds(), run.checkpoints->saves());
        f.bytes_written += run.checkpoints->bytes_written().count;
    }
}

double train_tokens_per_second(const TrainFacts& f) {
    const double seconds = training_seconds(f);
    const double tokens = sum_over(f.ranks, [](const auto& r) { return r.tokens; });
    return seconds > 0 ? tokens / seconds : 0;
}

double train_flop_per_second(const TrainFacts& f) {
    const double seconds = training_seconds(f);
    const double forward =
        forward_flop(f.config, sum_over(f.ranks, [](const auto& r) { return r.tokens; }),
                     sum_over(f.ranks, [](const auto& r) { return r.train.attended; }),
                     sum_over(f.ranks, [](const auto& r) { return r.scored; }));
    return seconds > 0 ? 3 * forward / seconds : 0;
}

namespace {

// What makes the same gathers and reductions weigh less.
std::string more_tokens(const TrainFacts& f) {
    return std::string("more tokens a pass (batch.tokens") +
           (f.deck.sections().train.batch_documents > 0 ? ", train.batch_documents" : "") +
           ") put more compute beside the same bytes";
}

} // namespace

std::vector<std::string> train_advice(const TrainFacts& f) {
    std::vector<std::string> notes;
    const double run = training_seconds(f);
    const auto share = [&](double seconds) {
        return std::to_string(static_cast<int>(100 * seconds / run)) + " %";
    };
    for (const PrefetchTold& told : directions(f)) {
        const bool slow = run > 0 && told.run.verdict != schedule::Verdict::inert &&
                          told.run.exposed_s > 0.1 * run;
        const bool limited = told.depth.automatic && f.deck.sections().fsdp.gather_memory.count > 0;
        if (slow && told.depth.units == 0) {
            notes.push_back(std::string("every ") + told.direction + " gather is waited for, " +
                            share(told.run.exposed_s) + " of the steps: " +
                            (told.asked > 0 || limited ? std::string("a larger fsdp.gather_memory")
                                                       : std::string(told.key) + " = 1") +
                            " would put it beside compute, for one more slot of " +
                            in_words(told.slot_bytes));
        } else if (slow) {
            notes.push_back(share(told.run.exposed_s) + " of the steps wait for " + told.direction +
                            " gathers: " + more_tokens(f));
        }
    }
    const double exposed = mean_over(f.ranks, phase_exposed_reduce);
    if (run > 0 && exposed > 0.1 * run) {
        notes.push_back(share(exposed) + " of the steps wait for reductions: " + more_tokens(f));
    }
    const auto idle = std::count_if(f.ranks.begin(), f.ranks.end(),
                                    [](const RankFigures& r) { return r.packs == 0; });
    if (idle > 0 && !f.step_seconds.empty()) {
        notes.push_back(std::to_string(idle) + " of " + std::to_string(f.ranks.size()) +
                        " ranks had no documents in any step: " +
                        (f.deck.sections().train.batch_documents > 0
                             ? "a larger train.batch_documents gives all of them work"
                             : "there are fewer packs than ranks"));
    }
    return notes;
}

std::string train_report(const TrainFacts& f, const std::vector<std::string>& notes) {
    std::string text = head_lines({"train", f.deck, f.topology, f.transport, f.backend_kind,
                                   f.backend_why, f.product, f.device}) +
                       "began      " + f.began_with + "\n" + phase_lines(train_phases(), f.ranks);
    for (const PrefetchTold& told : directions(f)) {
        text += prefetch_lines(std::string("prefetch ") + told.direction, told);
    }
    text += reductions(f) + memory_lines(f.memory, f.ranks) + speed(f) + learned(f) +
            evaluations(f) + kept(f);
    for (const std::string& note : notes) {
        text += "note       " + note + "\n";
    }
    return text;
}

std::vector<io::Table> train_timing_tables(const TrainFacts& f) {
    std::int64_t passes = 0;
    for (const RankFigures& r : f.ranks) {
        passes = std::max(passes, r.train.passes);
    }
    return {units_table(f.chain, f.topology.shard_size(), f.weights_seen),
            prefetch_table(directions(f)),
            phases_table(train_phases(), f.ranks,
                         {{"tokens_per_second", train_tokens_per_second(f)},
                          {"flop_per_second", train_flop_per_second(f)},
                          {"steps", static_cast<std::int64_t>(f.step_seconds.size())},
                          {"passes", passes},
                          {"step_seconds_median", median(f.step_seconds)},
                          {"first_compute_s", f.first_compute_s},
                          {"link_rate_emulated", emulated_rate(f.deck, f.transport)}}),
            ranks_table(f.ranks, true)};
}

} // namespace foregather::job
