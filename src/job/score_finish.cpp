// SPDX-License-Identifier: Apache-2.0
// The end of a score: figures read off, told, stored; the ledger closed.
#include <algorithm>
#include <cstdio>

#include "measure.hpp"
#include "provenance.hpp"
#include "score_run.hpp"
#include "settle.hpp"
#include "span_table.hpp"

namespace foregather::job {

// What has been scored is kept in PATH.part, and a later run goes on with it.
base::Status ScoreRun::stop(const PassLoop& loop) {
    watch_->file_work(
        "flushing " + results_->part_path(), [&] { return results_->bytes_written(); },
        [&] { results_->flush(); });
    early_->take_away_file();
    const PassLoop::Sums done = loop.sums();
    const std::int64_t here = std::min(loop.passes_done() * control_.size(), std::ssize(to_do_)) +
                              std::max<std::int64_t>(this_start_.packs_before, 0);
    progress_->log({{"event", "stopped"},
                    {"reason", loop.stopped()},
                    {"passes_done", loop.passes_done()},
                    {"passes", passes()},
                    {"scored_tokens", done.scored},
                    {"nll", done.nll}});
    progress_->say("stopped after pass " + std::to_string(loop.passes_done()) + " of " +
                   std::to_string(passes()) + " (" + loop.stopped() +
                   "): " + results_->part_path() + " keeps " + std::to_string(here) + " of " +
                   std::to_string(packs()) +
                   " packs; submit again with output.existing = resume to go on");
    return base::Status::stopped;
}

RunFacts ScoreRun::account(const io::Summary& summary) {
    measure(figures_,
            {*backend_, *source_, home_->communicator(), *compute_, inputs_.weights->bytes_read(),
             *results_, *watch_, product_s_before_, offload_});
    RunFacts facts{deck_,
                   inputs_,
                   topology_,
                   transport_,
                   home_->transport(),
                   backend_->kind(),
                   backend_->why,
                   backend_->kernels().product_name(),
                   backend_->why_product,
                   param_,
                   home_->weights_type(),
                   memory_,
                   depth_,
                   transformer_->logits_scale(),
                   gather_figures(control_, figures_),
                   {},
                   summary,
                   passes(),
                   since_start(load_end_ns_),
                   computed(inputs_.packs, to_do_, s_.score),
                   std::max<std::int64_t>(this_start_.packs_before, 0),
                   backend_->device().facts(),
                   offload_,
                   backend_->overrides};
    facts.prefetch = judge_run(facts.ranks);
    return facts;
}

base::Status ScoreRun::finish() {
    const io::Summary summary = results_->summarise(split_documents(inputs_));
    const RunFacts facts = account(summary);
    device::Device& device = backend_->device();
    const std::int64_t offset_at_end = control_.clock_offset_ns([&] { return device.now_ns(); });
    const auto packed = control_.gather_to_first(pack_spans(
        source_->spans(), {offset_at_start_ns_, offset_at_end, begin_ns_, device.now_ns()}));
    io::Table spans = span_table(packed, inputs_.chain);
    auto status = base::Status::done;
    std::vector<io::Table> tables;
    std::vector<io::Text> texts;
    std::string told;
    if (control_.first()) {
        for (const std::string& note : watch_->take_notes(true)) {
            take_note(note);
        }
        const auto advices = advice(facts);
        notes_.insert(notes_.end(), advices.begin(), advices.end());
        told = report(facts, notes_);
        texts = {finished_text(), {"/provenance/report", told}};
        if (const std::string how = backend_->kernels().algorithms(); !how.empty()) {
            texts.push_back({"/provenance/algorithms", how});
        }
        if (goes_on()) {
            const auto more = resumed_texts(deck_, start_, became(depth_));
            texts.insert(texts.end(), more.begin(), more.end());
        } else if (chooses()) { // laid out before it was known
            texts.push_back(effective_text(deck_, became(depth_)));
        }
        status = close_ledger(facts, spans);
        tables = closing_tables(facts, std::move(spans));
    }
    watch_->file_work(
        "completing " + results_->part_path(), [&] { return results_->bytes_written(); },
        [&] { results_->finish(summary, tables, texts); });
    progress_->say(told + "results    " + s_.output.file);
    if (control_.first()) {
        for (const std::string& problem : ledger_.problems()) {
            std::fprintf(stderr, "%s\n", problem.c_str());
        }
    }
    if (summary.not_finite_documents > 0) {
        throw mesh::AgreedError(base::Status::failed,
                                not_finite_text(summary.not_finite_documents, s_.output.file));
    }
    return static_cast<base::Status>(control_.broadcast(static_cast<std::int64_t>(status)));
}

base::Status ScoreRun::close_ledger(const RunFacts& facts, const io::Table& spans) {
    progress_->log({{"event", "done"},
                    {"loss", facts.summary.loss},
                    {"perplexity", facts.summary.perplexity},
                    {"scored_tokens", facts.summary.scored_tokens},
                    {"run_s", run_seconds(facts)},
                    {"tokens_per_second", tokens_per_second(facts)}});
    const auto rows = std::get<std::vector<std::int64_t>>(spans.columns.front().values).size();
    settle_after(ledger_, facts,
                 {rows, std::min(s_.output.timeline_passes, facts.passes), replaced_, goes_on(),
                  progress_->lines_logged()});
    return ledger_.close();
}

std::vector<io::Table> ScoreRun::closing_tables(const RunFacts& facts, io::Table spans) const {
    std::vector<io::Table> tables = timing_tables(facts);
    if (s_.output.timeline) {
        tables.push_back(std::move(spans));
    }
    if (auto_) {
        const auto more = choice_tables(
            *auto_, schedule::forward_plan(inputs_.chain.unit_order(), 1, 0), inputs_.chain);
        tables.insert(tables.end(), more.begin(), more.end());
    }
    std::vector<io::RunStart> starts = resume_.starts;
    starts.push_back(this_start_);
    tables.push_back(io::runs_table(starts));
    tables.push_back(ledger_table(ledger_));
    tables.push_back(choices_table({{"device", facts.backend_kind, facts.backend_why},
                                    {"transport", transport_.name, transport_.why},
                                    {"products", facts.product, facts.product_why},
                                    {"weights", base::name_of(param_.type), param_.why},
                                    {"depth", std::to_string(depth_.units),
                                     depth_.why.empty() ? "as asked for" : depth_.why}}));
    return tables;
}

} // namespace foregather::job
