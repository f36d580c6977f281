// SPDX-License-Identifier: Apache-2.0
// The end of a training run: figures read off, told, stored; the ledger closed.
#include <algorithm>
#include <cstdio>

#include "measure.hpp"
#include "provenance.hpp"
#include "settle_train.hpp"
#include "span_table.hpp"
#include "train_run.hpp"

namespace foregather::job {
namespace {

std::vector<const comm::Communicator*> reductions_of(const Trainer& trainer) {
    std::vector<const comm::Communicator*> found;
    for (const comm::Communicator* one : {trainer.reductions(), trainer.replicas()}) {
        if (one != nullptr) {
            found.push_back(one);
        }
    }
    return found;
}

} // namespace

TrainFacts TrainRun::account(const TrainLoop& loop) {
    measure(figures_,
            {*backend_, trainer_->source(), trainer_->home().communicator(), trainer_->compute(),
             bytes_read_, *results_, *watch_, product_s_before_, false});
    measure_training(figures_, {trainer_->source(), trainer_->evaluation(), trainer_->reducer(),
                                loop.figures(), saved_.empty() ? nullptr : checkpoints_.get(),
                                reductions_of(*trainer_)});
    TrainFacts facts{deck_,
                     inputs_.config,
                     inputs_.chain,
                     topology_,
                     transport_,
                     backend_->kind(),
                     backend_->why,
                     backend_->kernels().product_name(),
                     backend_->device().facts(),
                     trainer_->home().weights_type(),
                     work_->reduce,
                     memory_,
                     schedule_,
                     gather_figures(control_, figures_),
                     {},
                     {},
                     began_with_,
                     state_,
                     first_step_,
                     step_seconds_,
                     saved_,
                     since_start(load_end_ns_)};
    facts.forward = judge_run(facts.ranks, schedule::Direction::forward);
    facts.backward = judge_run(facts.ranks, schedule::Direction::backward);
    return facts;
}

std::string TrainRun::pack_all_spans(std::int64_t offset_at_end) {
    const ClockOffsets clock{offset_at_start_ns_, offset_at_end, begin_ns_,
                             backend_->device().now_ns()};
    const StepOfPass step = [&](std::int64_t pass) {
        const auto end = std::upper_bound(step_of_pass_.begin(), step_of_pass_.end(), pass);
        return first_step_ + (end - step_of_pass_.begin());
    };
    return pack_spans(trainer_->source().spans(), clock, step) +
           pack_spans(trainer_->reducer().spans(), clock, step);
}

base::Status TrainRun::finish(const TrainLoop& loop) {
    const TrainFacts facts = account(loop);
    const std::int64_t offset_at_end =
        control_.clock_offset_ns([&] { return backend_->device().now_ns(); });
    io::Table spans =
        span_table(control_.gather_to_first(pack_all_spans(offset_at_end)), inputs_.chain);
    auto status = base::Status::done;
    std::vector<io::Table> tables;
    std::vector<io::Text> texts;
    std::string told;
    if (control_.first()) {
        take_notes(true);
        const auto advices = train_advice(facts);
        notes_.insert(notes_.end(), advices.begin(), advices.end());
        told = train_report(facts, notes_);
        texts = {finished_text(), {"/provenance/report", told}};
        if (auto_) { // laid out before it was known
            texts.push_back(effective_text(deck_, became(schedule_.forward, schedule_.backward)));
        }
        if (const std::string how = backend_->kernels().algorithms(); !how.empty()) {
            texts.push_back({"/provenance/algorithms", how});
        }
        const auto rows = std::get<std::vector<std::int64_t>>(spans.columns.front().values).size();
        status = close_ledger(facts, rows, loop.figures());
        tables = closing_tables(facts, std::move(spans));
    }
    watch_->file_work(
        "completing " + results_->part_path(), [&] { return results_->bytes_written(); },
        [&] { results_->finish(std::nullopt, tables, texts); });
    progress_->say(told + "results    " + s_.output.file);
    if (control_.first()) {
        for (const std::string& problem : ledger_.problems()) {
            std::fprintf(stderr, "%s\n", problem.c_str());
        }
    }
    if (!loop.gave_up() && state_.bad_steps > 0) {
        throw mesh::AgreedError(
            base::Status::failed,
            "the run ends with " + std::to_string(state_.bad_steps) +
                " steps that were not applied: their loss or gradient norm is not finite. The "
                "weights are those of the step before them; look at /train in " +
                s_.output.file + ", and try a smaller train.learning_rate");
    }
    if (loop.gave_up()) {
        throw mesh::AgreedError(
            base::Status::failed,
            "training is given up at step " + std::to_string(state_.step) + ": " +
                std::to_string(state_.bad_steps) +
                " steps in a row had a loss or a gradient norm that is not finite "
                "(train.max_bad_steps); no checkpoint of them is written. Look at the steps before "
                "in " +
                s_.output.file + ", and try a smaller train.learning_rate");
    }
    return static_cast<base::Status>(control_.broadcast(static_cast<std::int64_t>(status)));
}

base::Status TrainRun::close_ledger(const TrainFacts& facts, std::size_t spans_kept,
                                    const LoopFigures& loop) {
    progress_->log({{"event", "done"},
                    {"steps", state_.step},
                    {"loss", state_.history.loss.back()},
                    {"tokens_per_second", train_tokens_per_second(facts)}});
    const Seen seen{deck_,
                    topology_,
                    transport_,
                    trainer_->home().transport(),
                    backend_->kind(),
                    backend_->why,
                    backend_->kernels().product_name(),
                    backend_->why_product,
                    param_,
                    trainer_->home().weights_type(),
                    memory_,
                    facts.ranks,
                    backend_->overrides};
    const schedule::Verdict verdict =
        schedule::worst(facts.forward.verdict, facts.backward.verdict);
    const std::string& reason =
        verdict == facts.forward.verdict ? facts.forward.reason : facts.backward.reason;
    const OutputSeen output{spans_kept,
                            std::min(s_.output.timeline_passes, loop.passes),
                            loop.passes,
                            progress_->lines_logged(),
                            verdict == schedule::Verdict::observed,
                            "the verdict is " + name_of(verdict),
                            reason,
                            replaced_          ? "a file was there and is replaced"
                            : from_.checkpoint ? "rows of " + std::to_string(first_step_ - 1) +
                                                     " steps before are taken over"
                                               : "no file was there"};
    settle_train_after(
        ledger_, facts, inputs_, seen, output,
        {rule_.packs,
         model::TrainableTransformer::activation_bytes(inputs_.config, training_limits(*work_)),
         from_.checkpoint ? began_with_ : "", batches_, trainer_->optimizer().latest()});
    return ledger_.close();
}

std::vector<io::Table> TrainRun::closing_tables(const TrainFacts& facts, io::Table spans) const {
    std::vector<io::Table> tables = train_timing_tables(facts);
    if (s_.output.timeline) {
        tables.push_back(std::move(spans));
    }
    if (auto_) {
        const auto more = choice_tables(*auto_, schedule_.plan, inputs_.chain);
        tables.insert(tables.end(), more.begin(), more.end());
    }
    tables.push_back(io::runs_table(starts_));
    tables.push_back(ledger_table(ledger_));
    const auto depth = [](const Depth& of) { return of.why.empty() ? "as asked for" : of.why; };
    tables.push_back(choices_table(
        {{"device", facts.backend_kind, facts.backend_why},
         {"transport", transport_.name, transport_.why},
         {"products", facts.product, backend_->why_product},
         {"weights", base::name_of(param_.type), param_.why},
         {"forward depth", std::to_string(schedule_.forward.units), depth(schedule_.forward)},
         {"backward depth", std::to_string(schedule_.backward.units), depth(schedule_.backward)},
         {"began with", began_with_, "checkpoint.resume = " + s_.checkpoint.resume}}));
    return tables;
}

} // namespace foregather::job
