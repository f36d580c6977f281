// SPDX-License-Identifier: Apache-2.0
// From deck to trained weights in order: decide and refuse, put together, load, run, account,
// finish.
#include "train.hpp"

#include <filesystem>
#include <optional>

#include <foregather/deck/ledger.hpp>
#include <foregather/mesh/watch.hpp>

#include <foregather/io/checkpoint_folder.hpp>
#include <foregather/shard/save.hpp>

#include "paths.hpp"
#include "progress.hpp"
#include "settle.hpp"
#include "train_loop.hpp"
#include "trainer.hpp"

namespace foregather::job {
namespace {

constexpr const char* packs_setting = "packs of a batch";

class TrainRun {
public:
    TrainRun(const deck::Deck& deck, const Start& start)
        : deck_(deck), start_(start), s_(deck.sections()),
          topology_(s_.mesh.shard, deck.where("mesh.shard")), control_(topology_.world()),
          ledger_(deck) {}

    base::Status run() {
        decide();
        prepare();
        load();
        TrainLoop loop({s_, inputs_, topology_, control_, *backend_, trainer_->transformer(),
                        schedule_.plan, trainer_->source(), trainer_->evaluation(),
                        trainer_->reducer(), trainer_->optimizer(), trainer_->compute()},
                       rule_, state_,
                       {[&](const StepFacts& step) { after_step(step); },
                        [&](const Evaluation& evaluation) { after_evaluation(evaluation); }});
        loop.run();
        return base::Status::done;
    }

private:
    void decide();
    void choose_transport_and_depths();
    void find_beginning();
    void tell_notes();
    void prepare();
    void load();
    void after_step(const StepFacts& step);
    void after_evaluation(const Evaluation& evaluation);
    bool saves_after(std::int64_t step) const;
    TrainWork work() const;

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
    TrainSchedule schedule_;
    MemoryPlan memory_;
    StartFrom from_;
    BatchRule rule_;
    io::TrainingState state_;
    std::vector<std::string> notes_;
    std::int64_t begin_ns_ = 0;
    // Destroyed in reverse order: streams before what their work uses.
    std::unique_ptr<mesh::Watch> watch_;
    std::unique_ptr<Progress> progress_;
    std::optional<TrainWork> work_;
    std::unique_ptr<Trainer> trainer_;
    std::unique_ptr<Checkpoints> checkpoints_;
};

void TrainRun::decide() {
    control_.together([&] {
        inputs_ = open_train_inputs(deck_, control_.first());
        if (control_.first()) {
            refuse_overlaps(deck_, start_.deck_name);
        }
    });
    backend_ = backend::open(s_.device, deck_.where("device.kind"), topology_, control_);
    begin_ns_ = backend_->device().now_ns() -
                (std::chrono::steady_clock::now() - start_.begin) / std::chrono::nanoseconds(1);
    control_.together([&] {
        judge_environment(deck_, backend_->overrides);
        refuse_wide_heads(deck_, inputs_.config.head_dim, *backend_);
    });
    choose_transport_and_depths();
    find_beginning();
    control_.together([&] {
        progress_ = std::make_unique<Progress>(control_.first(), s_.output.log,
                                               from_.checkpoint.has_value());
    });
    tell_notes();
}

void TrainRun::choose_transport_and_depths() {
    param_ =
        inputs_.weights
            ? choose_param_type(s_.fsdp.param_dtype, backend_->kind(), *inputs_.weights)
            : ParamType{s_.fsdp.param_dtype == "bf16" ? base::DType::bf16 : base::DType::f32,
                        s_.fsdp.param_dtype == "auto" ? "random weights are fp32" : "asked for"};
    work_.emplace(
        TrainWork{s_, inputs_, backend_->device().facts().threads, topology_.shard_size(),
                  topology_.replicas(), param_.type,
                  s_.fsdp.reduce_dtype == "bf16" ? base::DType::bf16 : base::DType::f32,
                  backend::needs_of(backend_->kind(), backend_->device().facts().threads)});
    const shard::ArenaPlan plan =
        arena_plan(inputs_.chain, topology_.shard_size(), work_->needs, param_.type);
    const mesh::WindowSpace space = mesh::window_space();
    const GroupFacts group{topology_.shard_size(), topology_.shard_on_one_node(),
                           topology_.local_size(), space.free, space.directory};
    const auto groups =
        (topology_.local_size() + topology_.shard_size() - 1) / topology_.shard_size();
    control_.together([&] {
        transport_ =
            choose_transport(deck_, backend_->transport(), backend_->can_share(), group,
                             groups * base::bytes_of(plan.whole_elements, param_.type), false);
    });
    if (control_.max(transport_.name == "shared" ? 0 : 1) == 1 && transport_.name == "shared") {
        transport_ = {backend_->transport(), "another node has no room for a shared window"};
    }
    control_.together([&] {
        schedule_ = plan_training_pass(deck_, inputs_.chain, plan, transport_, param_.type);
    });
}

void TrainRun::find_beginning() {
    from_ = find_start(s_.checkpoint, deck_.where("checkpoint.resume"), control_);
    control_.together([&] {
        if (control_.first() && !s_.checkpoint.directory.empty()) {
            io::prepare_checkpoints(s_.checkpoint.directory);
        }
    });
    rule_ = {s_.train.batch_documents, topology_.size() * s_.train.accumulate, s_.batch.tokens};
    state_.seed = s_.train.seed;
}

void TrainRun::tell_notes() {
    for (const auto& more : {inputs_.notes, backend_->notes, backend_->overrides, from_.notes,
                             depth_notes(schedule_, deck_)}) {
        notes_.insert(notes_.end(), more.begin(), more.end());
    }
    for (const std::string& note : notes_) {
        progress_->say("note: " + note);
    }
}

void TrainRun::prepare() {
    memory_ = plan_training_memory(*work_, transport_, schedule_);
    control_.together([&] { refuse_beyond_device(memory_, backend_->device().facts()); });
    watch_ = std::make_unique<mesh::Watch>(topology_, s_.comm.timeout_s);
    trainer_ = std::make_unique<Trainer>(
        Trainer::Parts{s_, inputs_, topology_, control_, *backend_, transport_, schedule_, *work_});
    io::CheckpointContent content;
    content.tensors = shard::tensors_of(inputs_.chain.units);
    content.config_json = inputs_.config_json;
    if (inputs_.weights) {
        content.take_origin(*inputs_.weights);
    }
    checkpoints_ = std::make_unique<Checkpoints>(control_, *watch_, s_.checkpoint, content,
                                                 trainer_->memory());
}

void TrainRun::load() {
    if (from_.checkpoint) {
        state_ = checkpoints_->load(*from_.checkpoint).state;
    } else if (inputs_.weights) {
        checkpoints_->begin(*inputs_.weights);
    }
    control_.together([&] { trainer_->publish(); });
}

bool TrainRun::saves_after(std::int64_t step) const {
    return !s_.checkpoint.directory.empty() &&
           (step == s_.train.steps || (s_.checkpoint.every > 0 && step % s_.checkpoint.every == 0));
}

void TrainRun::after_step(const StepFacts& f) {
    char line[300];
    std::snprintf(line, sizeof line,
                  "step %lld/%lld  loss %.6f  norm %.6g  rate %.3e  %.0f tokens/s",
                  static_cast<long long>(f.step), static_cast<long long>(s_.train.steps), f.loss,
                  f.gradient_norm, f.learning_rate, static_cast<double>(f.tokens) / f.seconds);
    progress_->say(line);
    if (saves_after(f.step)) {
        trainer_->compute().sync();
        checkpoints_->save(state_);
    }
}

void TrainRun::after_evaluation(const Evaluation& e) {
    progress_->say("evaluation after step " + std::to_string(e.step) + ": loss " +
                   std::to_string(e.loss));
}

} // namespace

base::Status train(const deck::Deck& deck, const Start& start) {
    return TrainRun(deck, start).run();
}

} // namespace foregather::job
