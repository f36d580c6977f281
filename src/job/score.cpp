// SPDX-License-Identifier: Apache-2.0
// From deck to results in order: decide and refuse, lay out, load, run, account, finish.
#include "score.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <foregather/deck/ledger.hpp>
#include <foregather/mesh/watch.hpp>

#include "measure.hpp"
#include "pass_loop.hpp"
#include "paths.hpp"
#include "provenance.hpp"
#include "resume.hpp"
#include "settle.hpp"
#include "span_table.hpp"
#include "weights_home.hpp"

namespace foregather::job {
namespace {

class ScoreRun {
public:
    ScoreRun(const deck::Deck& deck, const Start& start)
        : deck_(deck), start_(start), s_(deck.sections()),
          topology_(s_.mesh.shard, deck.where("mesh.shard")), control_(topology_.world()),
          ledger_(deck) {}

    base::Status run() {
        decide();
        if (resume_.state == Resume::State::published) {
            if (resume_.ended != base::Status::done) {
                throw mesh::AgreedError(resume_.ended, resume_.why);
            }
            return base::Status::done;
        }
        prepare();
        load();
        PassLoop loop({s_, inputs_, to_do_, control_, *backend_, *transformer_, *source_, *results_,
                       *watch_, *progress_, *compute_});
        loop.run(figures_);
        return finish();
    }

private:
    void decide();
    void look_for_earlier_run();
    void choose_transport_and_depth();
    void tell_notes();
    void prepare();
    void lay_out_results();
    void load();
    base::Status finish();
    RunFacts account(const io::Summary& summary);
    base::Status close_ledger(const RunFacts& facts, const io::Table& spans);
    std::vector<io::Table> closing_tables(const RunFacts& facts, io::Table spans) const;
    GroupFacts group_facts() const;
    backend::Needs needs() const {
        return backend::needs_of(backend_->kind(), backend_->device().facts().threads);
    }
    io::Output output() const {
        return {s_.output.file, s_.output.existing == "replace", s_.job.title, resumes()};
    }
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
    std::unique_ptr<io::ResultsFile> results_;
    std::unique_ptr<model::Transformer> transformer_;
    std::unique_ptr<WeightsHome> home_;
    schedule::TimedSource* source_ = nullptr; // owned by home_
    std::unique_ptr<device::Stream> compute_;
};

GroupFacts ScoreRun::group_facts() const {
    const mesh::WindowSpace space = mesh::window_space();
    return {topology_.shard_size(), topology_.shard_on_one_node(), topology_.local_size(),
            space.free, space.directory};
}

// Everything that can be refused, before any work and before any file exists.
void ScoreRun::decide() {
    control_.together([&] {
        inputs_ = open_inputs(deck_, control_.first());
        if (control_.first()) {
            refuse_overlaps(deck_, start_.deck_name);
            refuse_unusable(output());
            replaced_ = std::filesystem::exists(s_.output.file);
        }
    });
    backend_ = backend::open(s_.device, deck_.where("device.kind"), topology_, control_);
    // On the device's clock, when main() began: set-up counts from there.
    begin_ns_ = backend_->device().now_ns() -
                (std::chrono::steady_clock::now() - start_.begin) / std::chrono::nanoseconds(1);
    control_.together([&] {
        judge_environment(deck_, backend_->overrides);
        refuse_wide_heads(deck_, inputs_.config.head_dim, *backend_);
    });
    choose_transport_and_depth();
    look_for_earlier_run(); // reads the whole token file, so comes last
    const bool logs = resume_.state != Resume::State::published;
    control_.together([&] {
        progress_ =
            std::make_unique<Progress>(control_.first(), logs ? s_.output.log : "", goes_on());
    });
    tell_notes();
}

// What was there before, and what of the work is left.
void ScoreRun::look_for_earlier_run() {
    control_.together([&] {
        if (control_.first()) {
            inputs_.tokens_sha256 = io::sha256_of_file(inputs_.tokens->path());
            identity_ = identity_of(
                deck_, inputs_,
                {backend_->kind(), backend_->kernels().product_name(), base::name_of(param_.type)});
            if (resumes()) {
                resume_ = look_for_earlier(deck_, output(), identity_, packs(), true);
            }
            const auto done = std::count(resume_.packs_done.begin(), resume_.packs_done.end(), 1);
            this_start_ = run_start(start_, topology_.size(), done);
        }
    });
    share(resume_, control_);
    to_do_ = packs_to_do(resume_, packs());
}

void ScoreRun::choose_transport_and_depth() {
    param_ = choose_param_type(s_.fsdp.param_dtype, backend_->kind(), inputs_.weights->tensors());
    const backend::Needs asked = needs();
    // Windows of all groups of a node share its room.
    const auto groups =
        (topology_.local_size() + topology_.shard_size() - 1) / topology_.shard_size();
    const shard::ArenaPlan plan =
        arena_plan(inputs_.chain, topology_.shard_size(), asked, param_.type);
    control_.together([&] {
        offload_ = choose_offload(deck_, asked);
        transport_ =
            choose_transport(deck_, backend_->transport(), backend_->can_share(), group_facts(),
                             groups * base::bytes_of(plan.whole_elements, param_.type), offload_);
    });
    if (control_.max(transport_.name == "shared" ? 0 : 1) == 1 && transport_.name == "shared") {
        transport_ = {backend_->transport(), "another node has no room for a shared window"};
    }
    control_.together([&] {
        depth_ = choose_depth(deck_, inputs_.chain, plan, transport_, param_.type);
        settle_before(ledger_, deck_, transport_, inputs_, depth_, backend_->kind());
        ledger_.refuse_if_strict();
    });
}

void ScoreRun::tell_notes() {
    notes_ = resume_.notes;
    for (const auto& more : {inputs_.notes, backend_->notes, backend_->overrides}) {
        notes_.insert(notes_.end(), more.begin(), more.end());
    }
    if (!start_.launcher_warning.empty()) {
        notes_.push_back(start_.launcher_warning);
    }
    const auto depth_note = moves(transport_) ? note_of(depth_, deck_) : std::vector<std::string>{};
    for (const auto& more : {depth_note, ledger_.inert_notes(), ledger_.clamp_notes()}) {
        notes_.insert(notes_.end(), more.begin(), more.end());
    }
    for (const std::string& note : notes_) {
        progress_->say("note: " + note);
    }
}

void ScoreRun::prepare() {
    device::Device& device = backend_->device();
    const Work work{inputs_.packs, s_.score, device.facts().threads,
                    param_.type,   needs(),  offload_};
    memory_ = plan_memory(inputs_.config, inputs_.chain, topology_.shard_size(), transport_,
                          depth_.units, work);
    control_.together([&] { refuse_beyond_device(memory_, device.facts()); });
    watch_ = std::make_unique<mesh::Watch>(topology_, s_.comm.timeout_s);
    lay_out_results();
    const shard::ArenaPlan plan =
        arena_plan(inputs_.chain, topology_.shard_size(), work.needs, param_.type);
    home_ = std::make_unique<WeightsHome>(
        inputs_.chain, transport_, topology_, *backend_, s_.comm,
        WeightsHome::Layout{plan, param_.type, memory_.slots, offload_});
    control_.together([&] {
        transformer_ = std::make_unique<model::Transformer>(
            inputs_.config, inputs_.chain, device,
            model::Limits{inputs_.packs.most_tokens, inputs_.packs.longest, param_.type,
                          head_wants(s_.score), backend_->kernels().row_multiple()});
        backend_->kernels().prepare(transformer_->products());
        compute_ = device.stream("compute", device::Priority::normal);
        source_ = &home_->open_source(
            {schedule::forward_plan(inputs_.chain.unit_order(), passes(), depth_.units),
             backend_->judged_compute_ns(), s_.output.timeline ? s_.output.timeline_passes : 0});
    });
    offset_at_start_ns_ = control_.clock_offset_ns([&] { return device.now_ns(); });
}

void ScoreRun::lay_out_results() {
    std::vector<io::Table> tables;
    std::vector<io::Text> texts;
    const device::Facts facts = backend_->device().facts();
    const auto devices =
        control_.gather(facts.name + (facts.address.empty() ? "" : " " + facts.address));
    if (control_.first() && !goes_on()) {
        tables = provenance_tables(input_rows(inputs_), topology_, devices);
        tables.push_back(io::identity_table(identity_));
        tables.push_back(io::starts_table({this_start_}));
        texts = provenance_texts(deck_, start_);
    }
    std::optional<io::ResultsFile::Resumed> resumed;
    if (goes_on()) {
        resumed = {std::ssize(resume_.starts), this_start_};
    }
    results_ = std::make_unique<io::ResultsFile>(
        control_, output(), score_layout(inputs_, s_.score), tables, texts, resumed);
    if (!results_->note().empty()) {
        notes_.push_back(results_->note());
        progress_->say("note: " + results_->note());
    }
}

void ScoreRun::load() {
    device::Device& device = backend_->device();
    const std::int64_t begin = device.now_ns();
    figures_.seconds[phase_setup] = since_start(begin);
    figures_.calls[phase_setup] = 1;
    const auto work = [&] {
        watch_->file_work(
            "reading " + inputs_.weights->path(), [&] { return inputs_.weights->bytes_read(); },
            [&] { home_->load(*inputs_.weights); });
    };
    if (transport_.name == "shared") {
        work(); // epochs in the window tell the others: no need to wait for the slowest
    } else {
        control_.together(work);
    }
    load_end_ns_ = device.now_ns();
    product_s_before_ = backend_->kernels().product_seconds().value_or(0);
    figures_.seconds[phase_load] = static_cast<double>(load_end_ns_ - begin) * 1e-9;
    figures_.calls[phase_load] = 1;
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
                   depth_.units,
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
        const auto advices = advice(facts);
        notes_.insert(notes_.end(), advices.begin(), advices.end());
        told = report(facts, notes_);
        texts = {finished_text(), {"/provenance/report", told}};
        if (const std::string how = backend_->kernels().algorithms(); !how.empty()) {
            texts.push_back({"/provenance/algorithms", how});
        }
        if (goes_on()) {
            const auto more = resumed_texts(deck_, start_);
            texts.insert(texts.end(), more.begin(), more.end());
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

} // namespace

base::Status score(const deck::Deck& deck, const Start& start) {
    return ScoreRun(deck, start).run();
}

} // namespace foregather::job
