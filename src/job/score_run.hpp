// SPDX-License-Identifier: Apache-2.0
// One run of job score on this rank: its decisions, its parts and what is told of it, in the order
// in which score() makes them.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <foregather/deck/ledger.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/job/job.hpp>
#include <foregather/mesh/watch.hpp>

#include "auto_depth.hpp"
#include "pass_loop.hpp"
#include "report.hpp"
#include "resume.hpp"
#include "weights_home.hpp"

namespace foregather::job {

class ScoreRun {
public:
    ScoreRun(const deck::Deck& deck, const Start& start);
    base::Status run();

private:
    void decide();
    void look_for_earlier_run();
    void choose_transport_and_depth();
    void tell_notes();
    void take_note(const std::string& note);
    void prepare();
    void lay_out_results();
    void open_source();
    void load();
    void choose_depth_by_measuring();
    base::Status finish();
    base::Status stop(const PassLoop& loop);
    RunFacts account(const io::Summary& summary);
    base::Status close_ledger(const RunFacts& facts, const io::Table& spans);
    std::vector<io::Table> closing_tables(const RunFacts& facts, io::Table spans) const;
    GroupFacts group_facts() const;
    backend::Needs needs() const { return backend::needs_of(*backend_); }
    Work work() const {
        return {inputs_.packs, s_.score, backend_->device().facts().threads,
                param_.type,   needs(),  offload_};
    }
    io::Output output() const {
        return {s_.output.file, s_.output.existing == "replace", s_.job.title, resumes()};
    }
    bool chooses() const { return depth_.automatic && moves(transport_); }
    bool resumes() const { return s_.output.existing == "resume"; }
    bool goes_on() const { return resume_.state == Resume::State::go_on; }
    std::int64_t packs() const { return std::ssize(inputs_.packs.packs); }
    std::int64_t passes() const { return PassLoop::passes(std::ssize(to_do_), topology_.size()); }
    double since_start(std::int64_t ns) const { return static_cast<double>(ns - begin_ns_) * 1e-9; }

    const deck::Deck& deck_;
    const Start& start_;
    const deck::Sections& s_;
    mesh::Topology topology_;
    mesh::Control control_;
    deck::Ledger ledger_;
    Inputs inputs_;
    std::unique_ptr<backend::Backend> backend_;
    Transport transport_;
    ParamType param_;
    bool offload_ = false;
    MemoryPlan memory_;
    Depth depth_;
    std::optional<AutoDepths> auto_;        // what `auto` became
    std::vector<io::IdentityRow> identity_; // rank 0
    Resume resume_;
    io::RunStart this_start_;         // rank 0
    std::vector<std::int64_t> to_do_; // packs that are computed
    bool replaced_ = false;
    std::vector<std::string> notes_;
    std::int64_t begin_ns_ = 0, offset_at_start_ns_ = 0, load_end_ns_ = 0;
    double product_s_before_ = 0;
    RankFigures figures_;
    // Destroyed in reverse order: streams before what their work uses.
    std::unique_ptr<mesh::Watch> watch_;
    std::unique_ptr<Progress> progress_;
    std::unique_ptr<EarlyStop> early_;
    std::unique_ptr<io::ResultsFile> results_;
    std::unique_ptr<model::Transformer> transformer_;
    std::unique_ptr<WeightsHome> home_;
    schedule::TimedSource* source_ = nullptr; // owned by home_
    std::unique_ptr<device::Stream> compute_;
};

} // namespace foregather::job
