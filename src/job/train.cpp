// SPDX-License-Identifier: Apache-2.0
// From deck to trained weights in order: decide and refuse, put together, load, run, account,
// finish.
#include "train.hpp"

#include <algorithm>
#include <cmath>

#include "measure.hpp"
#include "provenance.hpp"
#include "settle_train.hpp"
#include "span_table.hpp"
#include "train_rehearsal.hpp"
#include "train_run.hpp"

namespace foregather::job {

base::Status TrainRun::run() {
    decide();
    if (nothing_left()) {
        progress_->say("nothing is left to do: " + from_.checkpoint->path() + " has taken " +
                       std::to_string(from_.checkpoint->state().step) +
                       " of train.steps = " + std::to_string(s_.train.steps));
        return base::Status::done;
    }
    prepare();
    load();
    if (chooses()) {
        choose_depths_by_measuring();
    }
    TrainLoop loop({s_, inputs_, topology_, control_, *backend_, trainer_->transformer(),
                    schedule_.plan, trainer_->source(), trainer_->evaluation(), trainer_->reducer(),
                    trainer_->optimizer(), trainer_->compute(), *watch_},
                   rule_, state_,
                   {[&](const StepFacts& step, const Batch& batch) { after_step(step, batch); },
                    [&](const Evaluation& evaluation) { after_evaluation(evaluation); },
                    [&] { return between_steps(); }});
    loop.run();
    return loop.stopped() ? stop() : finish(loop);
}

void TrainRun::prepare() {
    device::Device& device = backend_->device();
    memory_ = plan_training_memory(*work_, transport_, schedule_);
    control_.together([&] { refuse_beyond_device(memory_, device.facts()); });
    lay_out_results();
    const TrainSchedule allowed = schedule_;
    if (chooses()) { // one slot is enough to measure
        schedule_.plan.reshard_after_forward = true;
        schedule_ = with_depths(schedule_, {}, {});
    }
    trainer_ = std::make_unique<Trainer>(
        Trainer::Parts{s_, inputs_, topology_, control_, *backend_, transport_, schedule_, *work_});
    schedule_ = allowed;
    checkpoints_ = std::make_unique<Checkpoints>(control_, *watch_, s_.checkpoint, content(),
                                                 trainer_->memory());
    offset_at_start_ns_ = control_.clock_offset_ns([&] { return device.now_ns(); });
}

std::vector<InputRow> TrainRun::input_rows() const {
    const InputRow model =
        inputs_.weights ? input_row(inputs_.weights->path(), inputs_.weights->content_sha256())
                        : input_row(inputs_.config_path, "");
    std::vector<InputRow> rows = {
        model, input_row(inputs_.tokens->path(), inputs_.tokens_sha256, inputs_.tokens->sealed()),
        text_row(model, "/config", inputs_.config_json,
                 inputs_.weights && inputs_.weights->config_sealed())};
    if (inputs_.evaluation) {
        rows.push_back(input_row(inputs_.evaluation->path(), "", inputs_.evaluation->sealed()));
    }
    if (from_.checkpoint) {
        rows.push_back(input_row(from_.checkpoint->path(), ""));
    }
    return rows;
}

void TrainRun::lay_out_results() {
    std::vector<io::Table> tables;
    std::vector<io::Text> texts;
    const device::Facts facts = backend_->device().facts();
    const auto devices =
        control_.gather(facts.name + (facts.address.empty() ? "" : " " + facts.address));
    if (control_.first()) {
        tables = provenance_tables(input_rows(), topology_, devices);
        tables.push_back(io::starts_table(starts_));
        texts = provenance_texts(
            deck_, start_, chooses() ? Became{} : became(schedule_.forward, schedule_.backward));
    }
    results_ = std::make_unique<io::ResultsFile>(
        control_, output(), std::nullopt, tables, texts, std::nullopt,
        io::TrainLayout{s_.train.steps, evaluations_of(s_.train), items_.rows()});
    if (!results_->note().empty() && !from_.checkpoint) {
        notes_.push_back(results_->note());
        progress_->say("note: " + results_->note());
    }
}

void TrainRun::load() {
    device::Device& device = backend_->device();
    const std::int64_t begin = device.now_ns();
    figures_.seconds[phase_setup] = since_start(begin);
    figures_.calls[phase_setup] = 1;
    const auto settings = state_.settings;
    if (from_.checkpoint) {
        Checkpoints::Loaded loaded = checkpoints_->load(*from_.checkpoint);
        bytes_read_ = loaded.bytes.count;
        state_ = std::move(loaded.state);
        began_with_ = from_.checkpoint->path() + ": " + loaded.what;
    } else if (inputs_.weights) {
        checkpoints_->begin(*inputs_.weights);
        bytes_read_ = inputs_.weights->bytes_read();
        began_with_ = inputs_.weights->path();
    } else {
        InitialWeights random(s_.model.init_seed, inputs_.training.initializer_range);
        checkpoints_->begin(random);
        began_with_ = "random weights of model.init_seed = " + std::to_string(s_.model.init_seed);
    }
    state_.settings = settings;
    state_.seed = s_.train.seed;
    first_step_ = state_.step + 1;
    control_.together([&] { trainer_->publish(); });
    control_.together([&] {
        if (control_.first() && from_.checkpoint) {
            const std::string note =
                write_before(*results_, state_, *order_, inputs_.items, items_);
            if (!note.empty()) {
                notes_.push_back(note);
                progress_->say("note: " + note);
            }
        }
    });
    load_end_ns_ = device.now_ns();
    last_flush_s_ = static_cast<double>(load_end_ns_) * 1e-9;
    product_s_before_ = backend_->kernels().product_seconds().value_or(0);
    figures_.seconds[phase_load] = static_cast<double>(load_end_ns_ - begin) * 1e-9;
    figures_.calls[phase_load] = 1;
    progress_->say("begins with " + began_with_);
}

// Before the run begins: by the first step's packs. Weights, moments and position stay.
void TrainRun::choose_depths_by_measuring() {
    const Batch batch = order_->batch({state_.epoch, state_.place});
    const Division division = divide(inputs_.items, batch, topology_.size(), s_.batch.tokens);
    const auto plan_of = [&](int forward, int backward) {
        schedule::Plan plan = with_depths(schedule_, {forward, ""}, {backward, ""}).plan;
        plan.passes = division.per_rank;
        plan.step_ends = {division.per_rank};
        return plan;
    };
    {
        TrainRehearsal rehearsal({*trainer_, s_.train, control_, *backend_}, schedule_.plan,
                                 TrainLoop::most_tokens(s_, inputs_),
                                 TrainRehearsal::Ending::leave);
        control_.together([&] {
            PackInputs first;
            fill(first, inputs_.items, division.pack(topology_.rank(), 0), *inputs_.tokens);
            rehearsal.take(first);
        });
        auto_ = choose_by_measuring({rehearsal, trainer_->home(), control_}, plan_of,
                                    range_of(schedule_.forward), range_of(schedule_.backward));
    }
    const schedule::DepthCandidate& chosen = auto_->choice.chosen;
    schedule_ = with_depths(schedule_, chosen_of(schedule_.forward, chosen.forward, *auto_),
                            chosen_of(schedule_.backward, chosen.backward, *auto_));
    for (const auto& [direction, depth] :
         {std::pair{"forward", &schedule_.forward}, std::pair{"backward", &schedule_.backward}}) {
        if (depth->automatic) {
            progress_->say(std::string("prefetch ") + direction + " " + chosen_line(*depth));
        }
    }
    memory_ = plan_training_memory(*work_, transport_, schedule_);
    trainer_->reopen_sources();
    load_end_ns_ = backend_->device().now_ns();
    last_flush_s_ = static_cast<double>(load_end_ns_) * 1e-9;
    product_s_before_ = backend_->kernels().product_seconds().value_or(0);
}

void TrainRun::after_step(const StepFacts& step, const Batch& batch) {
    take_notes(false);
    step_seconds_.push_back(step.seconds);
    batches_.take(batch, inputs_.items);
    step_of_pass_.push_back((step_of_pass_.empty() ? 0 : step_of_pass_.back()) + step.passes);
    const base::Bytes peak{control_.max(peak_host_bytes())};
    progress_->say(step_line(step, s_.train.steps, peak));
    progress_->log(step_object(step, peak));
    if (!step.applied) {
        progress_->say("step " + std::to_string(step.step) +
                       " is not applied: its loss or gradient norm is not finite (" +
                       std::to_string(state_.bad_steps) + " in a row, train.max_bad_steps = " +
                       std::to_string(s_.train.max_bad_steps) + ")");
    }
    if (control_.first()) {
        const io::LossHistory& h = state_.history;
        results_->write_steps(step.step - 1, {{h.step.back()},
                                              {h.loss.back()},
                                              {h.gradient_norm.back()},
                                              {h.learning_rate.back()},
                                              {h.tokens.back()}});
        if (items_.stored()) {
            results_->write_items(items_.first[static_cast<std::size_t>(step.step - 1)],
                                  item_rows(inputs_.items, batch, step.step));
        }
    }
}

// Those that the watch has told.
void TrainRun::take_notes(bool last) {
    for (const std::string& note : watch_->take_notes(last)) {
        notes_.push_back(note);
        progress_->log({{"event", "note"}, {"text", note}});
    }
}

void TrainRun::after_evaluation(const Evaluation& evaluation) {
    progress_->say(evaluation_line(evaluation, s_.train.steps));
    progress_->log(evaluation_object(evaluation));
    if (control_.first()) {
        results_->write_evaluations(std::ssize(state_.evaluations.step) - 1,
                                    {{evaluation.step}, {evaluation.loss}, {evaluation.targets}});
    }
}

// Behind a step that was not applied weights may be lost already, by the update before it: what is
// due waits for a step that is applied, and at the end no older checkpoint is removed.
bool TrainRun::between_steps() {
    constexpr double assumed_bytes_per_s = 1e9;
    const double first_save_s =
        static_cast<double>(io::bytes_of(content()).count) / assumed_bytes_per_s;
    const double slowest_s = *std::max_element(step_seconds_.begin(), step_seconds_.end());
    const double save_s = saved_.empty() ? first_save_s : saved_.back().seconds;
    const std::int64_t asked = control_.max(early_->asked({slowest_s, save_s}));
    const bool stops = asked > 0 && state_.step < s_.train.steps && state_.bad_steps == 0;
    const std::int64_t every = s_.checkpoint.every;
    // Weights that no step of this start has changed are not worth a checkpoint at its end.
    const bool learned = state_.bad_steps < state_.step - first_step_ + 1;
    const bool last =
        state_.step == s_.train.steps && learned && state_.bad_steps < s_.train.max_bad_steps;
    save_due_ = save_due_ || stops || (every > 0 && state_.step % every == 0);
    if (!s_.checkpoint.directory.empty() && (last || (save_due_ && state_.bad_steps == 0))) {
        save();
        save_due_ = false;
    }
    flush_if_due();
    if (stops) {
        stopped_ = EarlyStop::reason(asked);
    }
    return stops;
}

base::Status TrainRun::stop() {
    flush();
    early_->take_away_file();
    const std::string where = "stopped after step " + std::to_string(state_.step) + " of " +
                              std::to_string(s_.train.steps) + " (" + stopped_ + ")";
    progress_->log({{"event", "stopped"},
                    {"reason", stopped_},
                    {"step", state_.step},
                    {"steps", s_.train.steps}});
    if (s_.checkpoint.directory.empty()) {
        throw mesh::AgreedError(base::Status::failed,
                                where + ": checkpoint.directory is empty, so nothing is kept");
    }
    progress_->say(where + ": " + saved_.back().path +
                   " is saved; submit again with checkpoint.resume = auto to go on");
    return base::Status::stopped;
}

// What was told of the steps reaches the disk before a checkpoint that is ahead of it: by these
// rows a later start knows the results as those of its own run.
void TrainRun::save() {
    flush();
    watch_->begin("save", state_.step);
    trainer_->compute().sync(); // the last update
    Checkpoints::Saved saved = checkpoints_->save(state_, state_.bad_steps > 0);
    watch_->end();
    progress_->say(save_line(saved));
    progress_->log(save_object(saved, state_.step));
    if (!saved.note.empty()) {
        progress_->say("note: " + saved.note);
        notes_.push_back(saved.note);
    }
    saved_.push_back(std::move(saved));
}

// Rank 0's clock decides for all: flushing is collective.
void TrainRun::flush_if_due() {
    const double now = static_cast<double>(backend_->device().now_ns()) * 1e-9;
    if (control_.broadcast(now - last_flush_s_ > s_.output.flush_every_s ? 1 : 0) == 1) {
        flush();
    }
}

void TrainRun::flush() {
    const double now = static_cast<double>(backend_->device().now_ns()) * 1e-9;
    watch_->begin("flush", figures_.calls[phase_flush] + 1);
    watch_->file_work(
        "flushing " + results_->part_path(), [&] { return results_->bytes_written(); },
        [&] { results_->flush(); });
    watch_->end();
    last_flush_s_ = static_cast<double>(backend_->device().now_ns()) * 1e-9;
    figures_.seconds[phase_flush] += last_flush_s_ - now;
    ++figures_.calls[phase_flush];
}

base::Status train(const deck::Deck& deck, const Start& start) {
    return TrainRun(deck, start).run();
}

} // namespace foregather::job
