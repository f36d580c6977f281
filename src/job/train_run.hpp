// SPDX-License-Identifier: Apache-2.0
// One training run on this rank: its decisions, its parts and what is told of it, in the order in
// which train() makes them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <foregather/deck/ledger.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/job/job.hpp>
#include <foregather/mesh/watch.hpp>

#include "auto_depth.hpp"
#include "early_stop.hpp"
#include "progress.hpp"
#include "provenance.hpp"
#include "settle_train.hpp"
#include "train_loop.hpp"
#include "train_report.hpp"
#include "train_results.hpp"
#include "train_settings.hpp"
#include "trainer.hpp"

namespace foregather::job {

class TrainRun {
public:
    TrainRun(const deck::Deck& deck, const Start& start);
    base::Status run();

private:
    // Everything that can be refused, before any work and before any file exists.
    void decide();
    void choose_transport_and_depths();
    void hold_folder();
    void find_beginning();
    void settle_beginning(const Settings& now);
    void tell_notes();

    void prepare();
    void lay_out_results();
    std::vector<InputRow> input_rows() const;
    void load();
    void choose_depths_by_measuring();

    void take_notes(bool last);
    void after_step(const StepFacts& step, const Batch& batch);
    void after_evaluation(const Evaluation& evaluation);
    bool between_steps(); // is the run to stop?
    base::Status stop();
    void save();
    void flush_if_due();
    void flush();

    base::Status finish(const TrainLoop& loop);
    TrainFacts account(const TrainLoop& loop);
    base::Status close_ledger(const TrainFacts& facts, std::size_t spans_kept,
                              const LoopFigures& loop);
    std::vector<io::Table> closing_tables(const TrainFacts& facts, io::Table spans) const;
    std::string pack_all_spans(std::int64_t offset_at_end);

    io::CheckpointContent content() const;
    io::Output output() const {
        return {s_.output.file, s_.output.existing == "replace", s_.job.title, false};
    }
    bool chooses() const {
        return moves(transport_) && (schedule_.forward.automatic || schedule_.backward.automatic);
    }
    bool nothing_left() const {
        return from_.checkpoint && from_.checkpoint->state().step >= s_.train.steps;
    }
    double since_start(std::int64_t ns) const { return static_cast<double>(ns - begin_ns_) * 1e-9; }

    const deck::Deck& deck_;
    const Start& start_;
    const deck::Sections& s_;
    mesh::Topology topology_;
    mesh::Control control_;
    deck::Ledger ledger_;
    TrainInputs inputs_;
    std::unique_ptr<backend::Backend> backend_;
    Transport transport_;
    ParamType param_;
    TrainSchedule schedule_;         // while depths are chosen, that by which they are
    std::optional<AutoDepths> auto_; // what `auto` became
    MemoryPlan memory_;
    StartFrom from_;
    BatchRule rule_;
    io::TrainingState state_;
    std::optional<DataOrder> order_;
    ItemPlan items_;
    std::vector<io::RunStart> starts_; // rank 0: earlier ones and this one
    std::vector<std::string> notes_;
    std::string began_with_;
    std::int64_t first_step_ = 1;
    std::int64_t begin_ns_ = 0, offset_at_start_ns_ = 0, load_end_ns_ = 0, bytes_read_ = 0;
    double product_s_before_ = 0, last_flush_s_ = 0;
    BatchesSeen batches_;
    bool replaced_ = false;
    bool save_due_ = false; // put off while steps are not applied
    RankFigures figures_;
    std::vector<double> step_seconds_;
    std::vector<std::int64_t> step_of_pass_; // passes of this start up to the end of each step
    std::vector<Checkpoints::Saved> saved_;
    // Destroyed in reverse order: streams before what their work uses.
    std::unique_ptr<mesh::Watch> watch_;
    std::unique_ptr<Progress> progress_;
    io::Descriptor folder_; // of checkpoints, held by rank 0 against other runs
    std::unique_ptr<EarlyStop> early_;
    std::string stopped_; // why
    std::unique_ptr<io::ResultsFile> results_;
    std::optional<TrainWork> work_;
    std::unique_ptr<Trainer> trainer_;
    std::unique_ptr<Checkpoints> checkpoints_;
};

} // namespace foregather::job
