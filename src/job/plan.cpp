// SPDX-License-Identifier: Apache-2.0
// From deck to predictions in order: decide and refuse, sweep, tell, store.
#include "plan.hpp"

#include <cstdio>
#include <filesystem>

#include <foregather/base/error.hpp>
#include <foregather/deck/ledger.hpp>
#include <foregather/io/results_file.hpp>

#include "check_parts.hpp"
#include "paths.hpp"
#include "plan_measured.hpp"
#include "provenance.hpp"
#include "settle_plan.hpp"

namespace foregather::job {
namespace {

// Everything that one rank can work out alone.
class PlanWork {
public:
    PlanWork(const deck::Deck& deck, const std::string& deck_path)
        : deck_(deck), s_(deck.sections()), ledger_(deck) {
        refuse_overlaps(deck, deck_path);
        refuse_uneven_shards(deck);
        model_ = open_planned_model(deck);
        source_ =
            s_.plan.measured.empty() ? described_times(deck, model_) : measured_times(deck, model_);
        settle_plan_before(ledger_, deck, model_, *source_);
        ledger_.refuse_if_strict();
        sweep_ = sweep(deck, model_, *source_);
    }

    std::string text() const {
        std::vector<std::string> notes = model_.notes;
        for (const auto& more : {ledger_.inert_notes(), ledger_.clamp_notes()}) {
            notes.insert(notes.end(), more.begin(), more.end());
        }
        return plan_text(facts(), notes);
    }

    base::Status settle(bool replaced) {
        settle_plan_after(ledger_, facts(), replaced);
        return ledger_.close();
    }
    std::vector<io::Table> tables() const { return plan_tables(facts()); }
    const deck::Ledger& ledger() const { return ledger_; }
    std::vector<InputRow> inputs() const {
        const InputRow model = input_row(s_.plan.model, "");
        std::vector<InputRow> rows = {
            model, text_row(model, "/config", model_.config_json, model_.config_sealed)};
        for (const std::string& path : {s_.plan.machine, s_.plan.measured}) {
            if (!path.empty()) {
                rows.push_back(input_row(path, io::sha256_of_file(path)));
            }
        }
        return rows;
    }

private:
    PlanFacts facts() const { return {deck_, model_, sweep_, *source_}; }

    const deck::Deck& deck_;
    const deck::Sections& s_;
    deck::Ledger ledger_;
    PlannedModel model_;
    std::unique_ptr<TimeSource> source_;
    Sweep sweep_;
};

} // namespace

base::Status plan(const deck::Deck& deck, const Start& start) {
    const deck::Sections& s = deck.sections();
    const mesh::Topology topology(0, "plan.ranks");
    const mesh::Control control(topology.world());
    std::unique_ptr<PlanWork> work;
    bool replaced = false;
    std::vector<io::Table> tables;
    std::vector<io::Text> texts;
    std::string told;
    const auto devices = control.gather(std::string("none: a plan computes nothing"));
    control.together([&] {
        if (!control.first()) {
            return;
        }
        replaced = std::filesystem::exists(s.output.file);
        io::refuse_unusable({s.output.file, s.output.existing == "replace", s.job.title, false});
        work = std::make_unique<PlanWork>(deck, start.deck_name);
        told = work->text();
        tables = provenance_tables(work->inputs(), topology, devices);
        const auto own = work->tables();
        tables.insert(tables.end(), own.begin(), own.end());
        texts = provenance_texts(deck, start);
    });
    io::ResultsFile results(control,
                            {s.output.file, s.output.existing == "replace", s.job.title, false},
                            std::nullopt, tables, texts);
    auto status = base::Status::done;
    tables.clear();
    texts.clear();
    if (control.first()) {
        status = work->settle(replaced);
        tables = {ledger_table(work->ledger())};
        texts = {finished_text(), {"/provenance/report", told}};
    }
    results.finish(std::nullopt, tables, texts);
    if (control.first()) {
        std::printf("%sresults    %s\n", told.c_str(), s.output.file.c_str());
        for (const std::string& problem : work->ledger().problems()) {
            std::fprintf(stderr, "%s\n", problem.c_str());
        }
    }
    return static_cast<base::Status>(control.broadcast(static_cast<std::int64_t>(status)));
}

std::string check_plan(const deck::Deck& deck, const std::string& deck_path, int /*ranks*/,
                       int /*ranks_per_node*/) {
    std::string text = deck.effective_text() + "\n" + PlanWork(deck, deck_path).text();
    const deck::Sections& s = deck.sections();
    try {
        io::refuse_unusable({s.output.file, s.output.existing == "replace", s.job.title, false});
    } catch (const base::Error& error) { // All of a plan can be told without its file.
        text += "note: without --check this is refused: " + std::string(error.what()) + "\n";
    }
    return text;
}

} // namespace foregather::job
