// SPDX-License-Identifier: Apache-2.0
// What a training run decides before any work: inputs, device, transport, depths, and where it
// begins.
#include <algorithm>
#include <filesystem>

#include <foregather/base/error.hpp>
#include <foregather/io/checkpoint_folder.hpp>
#include <foregather/mesh/window.hpp>
#include <foregather/shard/save.hpp>

#include "environment.hpp"
#include "paths.hpp"
#include "provenance.hpp"
#include "settle.hpp"
#include "settle_train.hpp"
#include "train_run.hpp"

namespace foregather::job {
namespace {

// How many packs a batch fills where train.batch_documents is 0: of the first start, kept.
constexpr const char* packs_setting = "packs of a batch";

base::DType type_of(const std::string& name) {
    return name == "bf16" ? base::DType::bf16 : base::DType::f32;
}

} // namespace

TrainRun::TrainRun(const deck::Deck& deck, const Start& start)
    : deck_(deck), start_(start), s_(deck.sections()),
      topology_(s_.mesh.shard, deck.where("mesh.shard")), control_(topology_.world()),
      ledger_(deck) {}

void TrainRun::decide() {
    watch_ = std::make_unique<mesh::Watch>(topology_, control_, s_.comm.timeout_s);
    control_.together([&] {
        inputs_ = open_train_inputs(deck_, control_.first());
        if (control_.first()) {
            refuse_overlaps(deck_, start_.deck_name);
            hold_folder(); // before it is looked at
            replaced_ = std::filesystem::exists(s_.output.file);
        }
    });
    backend_ = backend::open(s_.device, deck_.where("device.kind"), topology_, control_);
    // On the device's clock, when main() began: set-up counts from there.
    begin_ns_ = backend_->device().now_ns() -
                (std::chrono::steady_clock::now() - start_.begin) / std::chrono::nanoseconds(1);
    control_.together([&] {
        guard_environment(deck_, topology_, *backend_);
        refuse_wide_heads(deck_, inputs_.config.head_dim, *backend_);
    });
    choose_transport_and_depths();
    find_beginning();
    control_.together([&] {
        early_ = std::make_unique<EarlyStop>(deck_, start_, control_);
        progress_ = std::make_unique<Progress>(
            control_.first(), nothing_left() ? "" : s_.output.log, from_.checkpoint.has_value());
    });
    tell_notes();
}

// Keeps it from other runs, once it is there. By rank 0.
void TrainRun::hold_folder() {
    if (!s_.checkpoint.directory.empty() && !folder_) {
        folder_ = io::hold_checkpoints(s_.checkpoint.directory);
    }
}

void TrainRun::choose_transport_and_depths() {
    param_ = choose_train_param(s_.fsdp.param_dtype, backend_->kind(), inputs_);
    const int threads = backend_->device().facts().threads;
    work_.emplace(TrainWork{s_, inputs_, threads, topology_.shard_size(), topology_.replicas(),
                            param_.type, type_of(s_.fsdp.reduce_dtype),
                            backend::needs_of(*backend_)});
    const shard::ArenaPlan plan =
        arena_plan(inputs_.chain, topology_.shard_size(), work_->needs, param_.type);
    const mesh::WindowSpace space = mesh::window_space();
    const GroupFacts group{topology_.shard_size(), topology_.shard_on_one_node(),
                           topology_.local_size(), space.free, space.directory};
    const auto groups =
        (topology_.local_size() + topology_.shard_size() - 1) / topology_.shard_size();
    control_.together([&] {
        transport_ = choose_transport(
            deck_, backend_->transport(), backend_->can_share(), group,
            groups * window_bytes(plan, topology_.shard_size(), param_.type, work_->reduce), false);
    });
    if (control_.max(transport_.name == "shared" ? 0 : 1) == 1 && transport_.name == "shared") {
        transport_ = {backend_->transport(), "another node has no room for a shared window"};
    }
    control_.together([&] {
        schedule_ = plan_training_pass(deck_, inputs_.chain, plan, transport_, param_.type);
        settle_train_before(
            ledger_, deck_,
            {transport_, topology_.replicas(), inputs_, schedule_, backend_->kind()});
        ledger_.refuse_if_strict();
    });
}

// From which checkpoint, and whether it is of this run: rank 0 compares.
void TrainRun::find_beginning() {
    from_ = find_start(s_.checkpoint, deck_.where("checkpoint.resume"), control_);
    rule_ = {s_.train.batch_documents, topology_.size() * s_.train.accumulate, s_.batch.tokens};
    std::int64_t packs = rule_.packs;
    control_.together([&] {
        if (!control_.first()) {
            return;
        }
        const Settings now = train_settings(
            deck_, inputs_,
            {backend_->kind(), backend_->kernels().product_name(), base::name_of(param_.type)});
        settle_beginning(now);
        for (const auto& [name, value] : state_.settings) {
            packs = name == packs_setting ? std::stoll(value) : packs;
        }
        if (!nothing_left()) {
            refuse_unusable(output());
            const DiskPlan disk = plan_disk(
                s_, content(),
                io::bytes_of(io::TrainLayout{s_.train.steps, evaluations_of(s_.train), 0}),
                from_.checkpoint ? from_.checkpoint->state().step : 0);
            if (const std::string problem = disk.problem(); !problem.empty()) {
                base::refuse(problem);
            }
        }
    });
    rule_.packs = control_.broadcast(packs);
    order_.emplace(inputs_.items, s_.train.seed, s_.train.shuffle, rule_);
    items_ = plan_items(*order_, s_.train.steps);
    control_.together([&] {
        if (control_.first() && !nothing_left() && !s_.checkpoint.directory.empty()) {
            try {
                io::prepare_checkpoints(s_.checkpoint.directory);
            } catch (const base::Error& error) {
                throw base::Error(error.status(),
                                  deck_.where("checkpoint.directory") + ": " + error.what());
            }
            hold_folder();
        }
    });
}

void TrainRun::settle_beginning(const Settings& now) {
    starts_ = {};
    if (from_.checkpoint) {
        const io::TrainingState& stored = from_.checkpoint->state();
        const auto told = compare_with(*from_.checkpoint, inputs_.chain, now);
        from_.notes.insert(from_.notes.end(), told.begin(), told.end());
        starts_ = earlier_starts(output(), stored.history);
    }
    starts_.push_back(run_start(start_, topology_.size(), 0,
                                from_.checkpoint ? from_.checkpoint->state().step : 0));
    state_.settings = now;
    std::string packs = std::to_string(rule_.packs);
    if (from_.checkpoint) {
        for (const auto& [name, value] : from_.checkpoint->state().settings) {
            packs = name == packs_setting ? value : packs;
        }
    }
    state_.settings.emplace_back(packs_setting, packs);
}

io::CheckpointContent TrainRun::content() const { return content_of(inputs_); }

void TrainRun::tell_notes() {
    for (const auto& more :
         {from_.notes, inputs_.notes, backend_->notes, backend_->overrides,
          moves(transport_) ? depth_notes(schedule_, deck_) : std::vector<std::string>{},
          ledger_.inert_notes(), ledger_.clamp_notes()}) {
        notes_.insert(notes_.end(), more.begin(), more.end());
    }
    if (!start_.launcher_warning.empty()) {
        notes_.push_back(start_.launcher_warning);
    }
    if (!early_->limit().empty()) {
        notes_.push_back(early_->limit());
    }
    if (s_.checkpoint.directory.empty()) {
        notes_.push_back("checkpoint.directory is not set: the trained weights are not kept");
    }
    for (const std::string& note : notes_) {
        progress_->say("note: " + note);
    }
}

} // namespace foregather::job
