// SPDX-License-Identifier: Apache-2.0
// One bench on this rank: its decisions, its parts and what is told of it, in the order in which
// bench() makes them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <foregather/deck/ledger.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/job/job.hpp>

#include "bench_results.hpp"
#include "bench_turns.hpp"
#include "early_stop.hpp"
#include "progress.hpp"
#include "settle_bench.hpp"

namespace foregather::job {

class BenchRun {
public:
    BenchRun(const deck::Deck& deck, const Start& start);

    base::Status run();

private:
    void decide();
    void plan();
    void tell_notes();
    void prepare();
    void lay_out_results();
    void open_next(const Transport& transport);
    void load();
    void measure_transport(BenchTurns& turns); // to its end, or until stopped_ is set
    bool goes_on();                            // collective
    base::Status stop();
    void judge(const BenchPack& pack, const BenchTurns::Measured& measured);
    void take_verdicts(BenchTurns& turns);
    void take_figures(BenchTurns& turns);
    base::Status finish();
    base::Status close_ledger(const BenchResults& b, const std::vector<RankFigures>& ranks,
                              std::size_t spans_kept);
    std::vector<io::Table> closing_tables(const BenchResults& b,
                                          const std::vector<RankFigures>& ranks,
                                          io::Table spans) const;
    BenchResults results(const BenchFacts& facts) const;

    BenchGround ground() const;
    BenchFacts facts() const { return {plan_, inputs_.chain, topology_.shard_size(), param_.type}; }
    BenchStage::Parts parts() {
        return {inputs_, plan_,  topology_, control_, *backend_,
                *watch_, param_, threads(), needs()};
    }
    int threads() const { return backend_->device().facts().threads; }
    backend::Needs needs() const { return backend::needs_of(*backend_); }
    io::Output output() const {
        return {s_.output.file, s_.output.existing == "replace", s_.job.title, false};
    }
    double since_start(std::int64_t ns) const { return static_cast<double>(ns - begin_ns_) * 1e-9; }

    const deck::Deck& deck_;
    const Start& start_;
    const deck::Sections& s_;
    mesh::Topology topology_;
    mesh::Control control_;
    deck::Ledger ledger_;
    BenchInputs inputs_;
    std::unique_ptr<backend::Backend> backend_;
    ParamType param_;
    BenchPlan plan_;
    bool replaced_ = false;
    std::vector<std::string> notes_;
    std::int64_t begin_ns_ = 0, offset_at_start_ns_ = 0;
    double product_s_before_ = 0;
    std::int64_t rounds_done_ = 0, turns_begun_ = 0;
    std::int64_t last_turn_ns_ = 0; // its begin
    double slowest_turn_s_ = 0;     // with what was measured alone
    std::string stopped_;           // why, once the bench is to stop early; on all ranks
    RankFigures figures_;
    std::vector<ConfigurationFigures> configurations_; // rank 0
    std::vector<std::vector<Turn>> turns_;             // rank 0: by rank
    BenchSeen seen_;                                   // rank 0, but for its reductions
    std::string packed_spans_, transport_seen_;
    base::DType weights_seen_ = base::DType::f32;
    // Destroyed in reverse order.
    std::unique_ptr<mesh::Watch> watch_;
    std::unique_ptr<Progress> progress_;
    std::unique_ptr<EarlyStop> early_;
    std::unique_ptr<io::ResultsFile> results_;
    std::unique_ptr<BenchStage> stage_;
};

} // namespace foregather::job
