// SPDX-License-Identifier: Apache-2.0
// Pass k + 1 is enqueued after pass k - 1 was fetched; at a step's end the host waits for its sums.
#include "train_loop.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace foregather::job {
namespace {

LearningRate learning_rate_of(const deck::TrainSection& t) {
    const Schedule schedule = t.schedule == "constant" ? Schedule::constant
                              : t.schedule == "linear" ? Schedule::linear
                                                       : Schedule::cosine;
    return {schedule, t.learning_rate, t.min_learning_rate, t.warmup_steps, t.steps};
}

// A segment's batches are looked through before it begins, and the ends of its steps are kept: that
// must not grow with the run. Between two segments one gather is exposed.
constexpr std::int64_t steps_of_a_segment = 1024;

base::View<const std::int64_t> view(const std::vector<std::int64_t>& values) { return values; }

// All items of a file as one batch.
Batch whole(const Items& items) {
    Batch batch;
    batch.items.resize(items.items.size());
    std::iota(batch.items.begin(), batch.items.end(), 0);
    batch.tokens = items.tokens;
    batch.targets = items.targets;
    return batch;
}

} // namespace

TrainLoop::TrainLoop(const Parts& parts, const BatchRule& rule, io::TrainingState& state,
                     Hooks hooks)
    : p_(parts),
      order_(parts.inputs.items, parts.sections.train.seed, parts.sections.train.shuffle, rule),
      ahead_(order_), rate_(learning_rate_of(parts.sections.train)), state_(state),
      hooks_(std::move(hooks)) {
    device::Device& device = p_.backend.device();
    const base::Elements tokens = most_tokens(p_.sections, p_.inputs);
    for (Flight& f : flights_) {
        f.upload = PackBuffers(device, tokens, tokens);
        f.loss = {device, 1, "loss of a pass"};
        f.loss_on_host = {device, 1, "loss of a pass"};
        f.done = device.event();
    }
    summed_ = device.event();
    look_ = std::make_shared<device::Device::Look>([this] { tell_underway(); });
    device.look_while_waiting(look_);
}

TrainLoop::~TrainLoop() {
    try {
        p_.compute.sync();
    } catch (const std::exception&) { // a stream has failed: whoever waited has thrown it already
    }
}

base::Elements TrainLoop::most_tokens(const deck::Sections& sections, const TrainInputs& inputs) {
    return std::max({sections.batch.tokens, inputs.items.longest, inputs.evaluation_items.longest});
}

// Only while a step or an evaluation takes long.
void TrainLoop::tell_underway() const {
    if (!p_.watch.wants_detail()) {
        return;
    }
    auto work = p_.source.underway();
    if (!work && p_.evaluation != nullptr) {
        work = p_.evaluation->underway();
    }
    const auto reduction = p_.reducer.underway();
    std::string text = work ? describe(*work, p_.inputs.chain.units) : "";
    if (work && !work->begun && state_.updates > 0) {
        text += ", which comes after the update";
    }
    if (reduction) {
        text += (text.empty() ? "" : "; ") + describe(*reduction, p_.inputs.chain.units);
    }
    p_.watch.doing(text.empty() ? "the sums of the step" : text);
}

double TrainLoop::now_s() const { return static_cast<double>(p_.backend.device().now_ns()) * 1e-9; }

bool TrainLoop::evaluates_after(std::int64_t step) const {
    const std::int64_t every = p_.sections.train.evaluate_every;
    return p_.evaluation != nullptr &&
           (step == p_.sections.train.steps || (every > 0 && step % every == 0));
}

std::int64_t TrainLoop::next_stop() const {
    const std::int64_t most = std::min(p_.sections.train.steps, state_.step + steps_of_a_segment);
    std::int64_t step = state_.step + 1;
    while (step < most && !evaluates_after(step)) {
        ++step;
    }
    return step;
}

void TrainLoop::run() {
    const int allocations = p_.backend.device().allocations();
    last_end_s_ = now_s();
    while (state_.step < p_.sections.train.steps && !gave_up_ && !stopped_) {
        run_segment(next_stop());
        if (!gave_up_ && evaluates_after(state_.step)) {
            evaluate();
            stopped_ = hooks_.between();
            last_end_s_ = now_s();
        }
    }
    p_.watch.end();
    figures_.optimizer_s += p_.optimizer.take_seconds();
    figures_.allocations = p_.backend.device().allocations() - allocations;
}

Division TrainLoop::divide_batch(const Batch& batch) const {
    return divide(p_.inputs.items, batch, p_.topology.size(), p_.sections.batch.tokens);
}

// Steps between which nothing but steps happens: the chain of gathers goes on through all of them.
void TrainLoop::run_segment(std::int64_t last_step) {
    schedule::Plan plan = p_.plan;
    plan.passes = 0;
    plan.step_ends.clear();
    Position at{state_.epoch, state_.place};
    for (std::int64_t step = state_.step; step < last_step; ++step) {
        const Batch batch = ahead_.batch(at);
        plan.passes += divide_batch(batch).per_rank;
        plan.step_ends.push_back(plan.passes);
        at = batch.after;
    }
    p_.source.begin_segment(plan.passes, plan.step_ends);
    p_.reducer.begin_segment(plan);
    while (state_.step < last_step && !gave_up_ && !stopped_) {
        run_step(order_.batch({state_.epoch, state_.place}));
    }
    if (stopped_) {
        p_.source.stop_early();
    }
}

void TrainLoop::run_step(const Batch& batch) {
    p_.watch.begin("step", state_.step + 1);
    const Division division = divide_batch(batch);
    const auto scale = static_cast<float>(1.0 / static_cast<double>(batch.targets));
    Sums sums;
    for (std::int64_t k = 0; k < division.per_rank; ++k) {
        if (k > 1) {
            fetch(sums, false);
        }
        if (k == 1) { // times of the update must be read before a second mark comes after it
            figures_.optimizer_s += p_.optimizer.take_seconds();
        }
        enqueue(sums, view(division.pack(p_.topology.rank(), k)), scale);
    }
    p_.reducer.wait_reduced(p_.compute);
    p_.optimizer.sum_squares(p_.compute);
    summed_->record(p_.compute);
    const double begin = now_s();
    p_.watch.doing("waiting for its passes");
    summed_->wait_host();
    figures_.step_wait_s += now_s() - begin;
    figures_.wait_s += now_s() - begin;
    figures_.optimizer_s += p_.optimizer.take_seconds();
    while (sums.fetched < sums.enqueued) {
        fetch(sums, true);
    }
    StepFacts facts;
    facts.step = state_.step + 1;
    facts.targets = batch.targets;
    facts.tokens = batch.tokens;
    facts.passes = division.per_rank;
    decide(facts, sums.nll);
    ++figures_.steps;
    state_.step = facts.step;
    state_.epoch = batch.after.epoch;
    state_.place = batch.after.place;
    io::LossHistory& h = state_.history;
    h.step.push_back(facts.step);
    h.loss.push_back(facts.loss);
    h.gradient_norm.push_back(facts.gradient_norm);
    h.learning_rate.push_back(facts.learning_rate);
    h.tokens.push_back(facts.targets);
    const double end = now_s();
    figures_.run_s += end - last_end_s_;
    facts.seconds = end - last_end_s_;
    p_.watch.doing("storing the step's figures");
    hooks_.step(facts, batch);
    if (!evaluates_after(facts.step)) {
        stopped_ = hooks_.between();
    }
    last_end_s_ = now_s();
}

// The same decision on every rank: sums are added in the order of ranks, the squares over the ranks
// of one replica, since all replicas hold the same.
void TrainLoop::decide(StepFacts& facts, double nll) {
    p_.watch.doing("waiting for the other ranks' sums");
    const auto losses = p_.control.gather(nll);
    const auto squares = p_.control.gather(p_.optimizer.squares());
    double loss = 0, square = 0;
    for (const double one : losses) {
        loss += one;
    }
    for (int r = 0; r < p_.topology.shard_size(); ++r) {
        square += squares[static_cast<std::size_t>(r)];
    }
    const deck::TrainSection& t = p_.sections.train;
    facts.loss = loss / static_cast<double>(facts.targets);
    facts.gradient_norm = std::sqrt(square);
    facts.learning_rate = learning_rate(rate_, facts.step);
    facts.applied = std::isfinite(facts.loss) && std::isfinite(facts.gradient_norm);
    const double gather_s = exposed_gather_s();
    const double reduce_s = p_.reducer.figures().exposed_s;
    facts.exposed_gather_s = gather_s - exposed_gather_s_;
    facts.exposed_reduce_s = reduce_s - exposed_reduce_s_;
    exposed_gather_s_ = gather_s;
    exposed_reduce_s_ = reduce_s;
    if (facts.applied) {
        state_.bad_steps = 0;
        ++state_.updates;
        p_.optimizer.step({facts.learning_rate, t.beta1, t.beta2, t.epsilon, t.weight_decay,
                           state_.updates, clip_scale(facts.gradient_norm, t.gradient_clip_norm)},
                          p_.source, p_.compute);
        return;
    }
    ++figures_.not_applied;
    gave_up_ = ++state_.bad_steps >= t.max_bad_steps;
    if (!gave_up_) {
        p_.optimizer.skip(p_.source, p_.compute);
    }
}

double TrainLoop::exposed_gather_s() const {
    return p_.source.figures(schedule::Direction::forward).exposed_s +
           p_.source.figures(schedule::Direction::backward).exposed_s;
}

model::TrainingPack TrainLoop::load(Flight& f, const Items& items, const io::TokenFile& tokens,
                                    base::View<const std::int64_t> pack) {
    fill(f.inputs, items, pack, tokens);
    const PackBuffers::Views in = f.upload.upload(f.inputs, p_.compute);
    return {in.ids, in.positions, in.offsets, in.rows, in.targets, f.loss.view()};
}

void TrainLoop::enqueue(Sums& sums, base::View<const std::int64_t> pack, float scale) {
    Flight& f = flight(sums.enqueued++);
    p_.backend.device().mark_time(p_.compute);
    const model::TrainingPack what = load(f, p_.inputs.items, *p_.inputs.tokens, pack);
    p_.source.begin_pass(!pack.empty());
    p_.transformer.pass(p_.source, p_.reducer, what, scale, p_.backend.kernels(), p_.compute);
    p_.backend.device().copy_out(base::View<const double>(f.loss.view()), f.loss_on_host.view(),
                                 p_.compute);
    f.done->record(p_.compute);
    ++figures_.passes;
    figures_.packs += pack.empty() ? 0 : 1;
    figures_.longest_pack = std::max(figures_.longest_pack, std::ssize(f.inputs.ids));
    for (const std::int64_t i : pack) {
        const Item& item = p_.inputs.items.items[static_cast<std::size_t>(i)];
        figures_.tokens += item.tokens;
        figures_.targets += item.targets;
        figures_.attended +=
            static_cast<double>(item.tokens) * static_cast<double>(item.tokens + 1);
    }
}

void TrainLoop::fetch(Sums& sums, bool waited) {
    Flight& f = flight(sums.fetched++);
    if (!waited) {
        const double begin = now_s();
        f.done->wait_host();
        figures_.wait_s += now_s() - begin;
    }
    p_.source.collect_pass();
    p_.reducer.collect_pass();
    sums.nll += f.loss_on_host.view()[0];
}

void TrainLoop::evaluate() {
    p_.watch.begin("evaluation", state_.step);
    const double begin = now_s();
    const Items& items = p_.inputs.evaluation_items;
    const Division division =
        divide(items, whole(items), p_.topology.size(), p_.sections.batch.tokens);
    schedule::TimedSource& source = *p_.evaluation;
    source.begin_segment(division.per_rank, {});
    Sums sums;
    const auto fetch_one = [&] {
        Flight& f = flight(sums.fetched++);
        f.done->wait_host();
        source.collect_pass();
        sums.nll += f.loss_on_host.view()[0];
    };
    for (std::int64_t k = 0; k < division.per_rank; ++k) {
        if (k > 1) {
            fetch_one();
        }
        if (k == 1) { // as in a step: before a second mark
            figures_.optimizer_s += p_.optimizer.take_seconds();
        }
        const auto pack = view(division.pack(p_.topology.rank(), k));
        Flight& f = flight(sums.enqueued++);
        p_.backend.device().mark_time(p_.compute);
        const model::TrainingPack what = load(f, items, *p_.inputs.evaluation, pack);
        source.begin_pass(!pack.empty());
        p_.transformer.evaluate(source, what, p_.backend.kernels(), p_.compute);
        p_.backend.device().copy_out(base::View<const double>(f.loss.view()), f.loss_on_host.view(),
                                     p_.compute);
        f.done->record(p_.compute);
    }
    while (sums.fetched < sums.enqueued) {
        fetch_one();
    }
    figures_.optimizer_s += p_.optimizer.take_seconds(); // where there was one pass
    double nll = 0;
    for (const double one : p_.control.gather(sums.nll)) {
        nll += one;
    }
    ++figures_.evaluations;
    const double end = now_s();
    figures_.evaluate_s += end - begin;
    figures_.run_s += end - last_end_s_;
    const Evaluation result{state_.step, nll / static_cast<double>(items.targets), items.targets};
    state_.evaluations.step.push_back(result.step);
    state_.evaluations.loss.push_back(result.loss);
    state_.evaluations.tokens.push_back(result.targets);
    hooks_.evaluated(result);
    p_.watch.end();
}

} // namespace foregather::job
