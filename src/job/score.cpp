// SPDX-License-Identifier: Apache-2.0
// From deck to results in order: decide and refuse, lay out, load, choose what is left open, run.
#include "score.hpp"

#include <filesystem>

#include "environment.hpp"
#include "paths.hpp"
#include "provenance.hpp"
#include "score_rehearsal.hpp"
#include "score_run.hpp"
#include "settle.hpp"

namespace foregather::job {

ScoreRun::ScoreRun(const deck::Deck& deck, const Start& start)
    : deck_(deck), start_(start), s_(deck.sections()),
      topology_(s_.mesh.shard, deck.where("mesh.shard")), control_(topology_.world()),
      ledger_(deck) {}

base::Status ScoreRun::run() {
    decide();
    if (resume_.state == Resume::State::published) {
        if (resume_.ended != base::Status::done) {
            throw mesh::AgreedError(resume_.ended, resume_.why);
        }
        return base::Status::done;
    }
    prepare();
    load();
    if (chooses()) {
        choose_depth_by_measuring();
    }
    PassLoop loop({s_, inputs_, to_do_, control_, *backend_, *transformer_, *source_, *results_,
                   *watch_, *progress_, *compute_, *early_, transport_.name != "shared",
                   [&](const std::string& note) { take_note(note); }});
    loop.run(figures_);
    return loop.stopped().empty() ? finish() : stop(loop);
}

GroupFacts ScoreRun::group_facts() const {
    const mesh::WindowSpace space = mesh::window_space();
    return {topology_.shard_size(), topology_.shard_on_one_node(), topology_.local_size(),
            space.free, space.directory};
}

// Everything that can be refused, before any work and before any file exists.
void ScoreRun::decide() {
    watch_ = std::make_unique<mesh::Watch>(topology_, control_, s_.comm.timeout_s);
    control_.together([&] {
        inputs_ = open_inputs(deck_, control_.first());
        if (control_.first()) {
            refuse_overlaps(deck_, start_.deck_name);
            refuse_unusable(output());
            replaced_ = std::filesystem::exists(s_.output.file);
        }
        early_ = std::make_unique<EarlyStop>(deck_, start_, control_);
    });
    backend_ = backend::open(s_.device, deck_.where("device.kind"), topology_, control_);
    // On the device's clock, when main() began: set-up counts from there.
    begin_ns_ = backend_->device().now_ns() -
                (std::chrono::steady_clock::now() - start_.begin) / std::chrono::nanoseconds(1);
    control_.together([&] {
        guard_environment(deck_, topology_, *backend_);
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

// One that was told already.
void ScoreRun::take_note(const std::string& note) {
    notes_.push_back(note);
    progress_->log({{"event", "note"}, {"text", note}});
}

void ScoreRun::tell_notes() {
    notes_ = resume_.notes;
    for (const auto& more : {inputs_.notes, backend_->notes, backend_->overrides}) {
        notes_.insert(notes_.end(), more.begin(), more.end());
    }
    if (!start_.launcher_warning.empty()) {
        notes_.push_back(start_.launcher_warning);
    }
    const std::string of_depth = depth_note(depth_, deck_, "fsdp.forward_prefetch");
    if (moves(transport_) && !of_depth.empty()) {
        notes_.push_back(of_depth);
    }
    if (!early_->limit().empty()) {
        notes_.push_back(early_->limit());
    }
    for (const auto& more : {ledger_.inert_notes(), ledger_.clamp_notes()}) {
        notes_.insert(notes_.end(), more.begin(), more.end());
    }
    for (const std::string& note : notes_) {
        progress_->say("note: " + note);
    }
}

void ScoreRun::prepare() {
    device::Device& device = backend_->device();
    memory_ = plan_memory(inputs_.config, inputs_.chain, topology_.shard_size(), transport_,
                          depth_.units, work());
    control_.together([&] { refuse_beyond_device(memory_, device.facts()); });
    lay_out_results();
    const shard::ArenaPlan plan =
        arena_plan(inputs_.chain, topology_.shard_size(), needs(), param_.type);
    home_ = std::make_unique<WeightsHome>(
        inputs_.chain, transport_, topology_, *backend_, s_.comm,
        WeightsHome::Layout{plan, param_.type, chooses() ? 1 : memory_.slots, offload_});
    control_.together([&] {
        transformer_ = std::make_unique<model::Transformer>(
            inputs_.config, inputs_.chain, device,
            model::Limits{inputs_.packs.most_tokens, inputs_.packs.longest, param_.type,
                          head_wants(s_.score), backend_->kernels().row_multiple()});
        backend_->kernels().prepare(transformer_->products());
        compute_ = device.stream("compute", device::Priority::normal);
        if (!chooses()) {
            open_source();
        }
    });
    offset_at_start_ns_ = control_.clock_offset_ns([&] { return device.now_ns(); });
}

void ScoreRun::open_source() {
    source_ = &home_->open_source(
        {schedule::forward_plan(inputs_.chain.unit_order(), passes(), depth_.units),
         backend_->judged_compute_ns(), s_.output.timeline ? s_.output.timeline_passes : 0});
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
        texts = provenance_texts(deck_, start_, chooses() ? Became{} : became(depth_));
    }
    std::optional<io::ResultsFile::Resumed> resumed;
    if (goes_on()) {
        resumed = {std::ssize(resume_.starts), this_start_};
    }
    results_ = std::make_unique<io::ResultsFile>(
        control_, output(), score_layout(inputs_, s_.score), tables, texts, resumed);
    if (!results_->note().empty() && resume_.notes.empty()) { // else it has been told why
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

// Before the run begins: by the first packs of it, whose results are dropped.
void ScoreRun::choose_depth_by_measuring() {
    if (to_do_.empty()) {
        auto_ = choose_without_measuring("every pack was in the file already");
    } else {
        const PackPlan& packs = inputs_.packs;
        ScoreRehearsal rehearsal(
            {*backend_, *transformer_, inputs_.config, inputs_.chain, *compute_},
            head_wants(s_.score), packs.most_tokens, packs.most_windows);
        control_.together([&] {
            PackInputs first;
            const auto turn = static_cast<std::size_t>(control_.rank()) % to_do_.size();
            fill(first, packs.packs[static_cast<std::size_t>(to_do_[turn])], *inputs_.tokens,
                 packs.cut, s_.score.more());
            rehearsal.take(first);
        });
        auto_ = choose_by_measuring({rehearsal, *home_, control_},
                                    [&](int forward, int) {
                                        return schedule::forward_plan(inputs_.chain.unit_order(), 1,
                                                                      forward);
                                    },
                                    range_of(depth_), {});
    }
    depth_ = chosen_of(depth_, auto_->choice.chosen.forward, *auto_);
    progress_->say("prefetch   " + chosen_line(depth_));
    memory_ = plan_memory(inputs_.config, inputs_.chain, topology_.shard_size(), transport_,
                          depth_.units, work());
    home_->resize_slots(topology_, memory_.slots);
    control_.together([&] { open_source(); });
    load_end_ns_ = backend_->device().now_ns();
    product_s_before_ = backend_->kernels().product_seconds().value_or(0);
}

base::Status score(const deck::Deck& deck, const Start& start) {
    return ScoreRun(deck, start).run();
}

} // namespace foregather::job
