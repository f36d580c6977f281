// SPDX-License-Identifier: Apache-2.0
// As TrainLoop::run_step(): passes two in flight, and at a step's end the host waits for its sums.
#include "train_rehearsal.hpp"

#include <algorithm>

namespace foregather::job {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Gradients that go nowhere: two slots in turn, as those of a reducer.
class DroppedGradients final : public shard::GradientSink {
public:
    explicit DroppedGradients(base::View<float> slots)
        : slots_{slots.first(slots.size() / 2), slots.subspan(slots.size() / 2)} {}

    base::View<float> begin(base::UnitId /*unit*/, device::Stream& /*compute*/) override {
        return slots_[turn_];
    }
    void end(base::UnitId /*unit*/, device::Stream& /*compute*/) override { turn_ = 1 - turn_; }

private:
    std::array<base::View<float>, 2> slots_;
    std::size_t turn_ = 0;
};

} // namespace

struct TrainRehearsal::Playing {
    std::vector<StepSeconds> steps;
    std::int64_t before_end = 0;     // of the step before the one to be read
    std::int64_t begun = 0;          // the latest step of which a pass was fetched
    const StepEvents* due = nullptr; // of the step that is to be read
};

TrainRehearsal::TrainRehearsal(const Parts& parts, const schedule::Plan& plan,
                               base::Elements tokens, Ending ending)
    : Rehearsal(parts.backend.device(), parts.trainer.compute(), plan, parts.section.accumulate),
      p_(parts), ending_(ending), upload_(device(), tokens, tokens),
      loss_(device(), 1, "loss of a rehearsal"), loss_on_host_(device(), 1, "loss of a rehearsal") {
    for (auto& done : done_) {
        done = device().event();
    }
    for (StepEvents& events : events_) {
        for (auto* event :
             {&events.begun, &events.reduced, &events.before_update, &events.after_update}) {
            *event = device().event();
        }
    }
    summed_ = device().event();
}

void TrainRehearsal::take(const PackInputs& inputs) {
    views_ = upload_.upload(inputs, compute());
    scale_ = 1.0F / static_cast<float>(std::max<std::int64_t>(std::ssize(views_.targets), 1));
}

void TrainRehearsal::enqueue(const Ends& ends, device::Event& done) {
    const model::TrainingPack pack{views_.ids,  views_.positions, views_.offsets,
                                   views_.rows, views_.targets,   loss_.view()};
    DroppedGradients dropped(p_.trainer.gradient_slots());
    shard::GradientSink* sink = ends.reducer;
    ends.source.begin_pass(!views_.ids.empty());
    p_.trainer.transformer().pass(ends.source, sink == nullptr ? dropped : *sink, pack, scale_,
                                  p_.backend.kernels(), compute());
    device().copy_out(base::View<const double>(loss_.view()), loss_on_host_.view(), compute());
    done.record(compute());
}

// A step of training asks the other ranks four times before the next: for losses, squares, the
// largest memory, and whether files are due.
void TrainRehearsal::end_step(const Ends& ends, StepEvents& events) {
    p_.control.gather(loss_on_host_.view()[0]);
    p_.control.gather(p_.trainer.optimizer().squares());
    const deck::TrainSection& t = p_.section;
    events.before_update->record(compute());
    if (ending_ == Ending::update) {
        p_.trainer.optimizer().step({0, t.beta1, t.beta2, t.epsilon, 0, 1, 1}, ends.source,
                                    compute());
    } else {
        p_.trainer.optimizer().skip(ends.source, compute());
    }
    events.after_update->record(compute());
    p_.control.max(0);
    p_.control.broadcast(std::int64_t{0});
}

void TrainRehearsal::read_step(Playing& playing) {
    if (playing.due == nullptr) {
        return;
    }
    const StepEvents& e = *playing.due;
    const std::int64_t end = e.after_update->time_ns();
    const bool first = playing.steps.empty();
    StepSeconds step;
    step.step = seconds(end - (first ? playing.begun : playing.before_end));
    step.optimizer = seconds(end - e.before_update->time_ns());
    step.between = seconds(e.before_update->time_ns() - e.reduced->time_ns()) +
                   (first ? 0 : seconds(playing.begun - playing.before_end));
    playing.before_end = end;
    playing.steps.push_back(step);
    playing.due = nullptr;
}

std::vector<Rehearsal::StepSeconds> TrainRehearsal::play(const Ends& ends, std::int64_t steps,
                                                         const Collected& collected) {
    const std::int64_t passes = passes_per_step();
    const schedule::Plan segment = segment_of(plan(), steps, passes);
    ends.source.begin_segment(segment.passes, segment.step_ends);
    if (ends.reducer != nullptr) {
        ends.reducer->begin_segment(segment);
    }
    Playing playing;
    for (std::int64_t step = 0; step < steps; ++step) {
        StepEvents& events = events_[static_cast<std::size_t>(step % 2)];
        std::int64_t fetched = 0;
        const auto fetch = [&] {
            if (fetched == 0) { // a later pass's mark may be one too many
                playing.begun = events.begun->time_ns();
            }
            ends.source.collect_pass();
            if (ends.reducer != nullptr) {
                ends.reducer->collect_pass();
            }
            ++fetched;
        };
        for (std::int64_t k = 0; k < passes; ++k) {
            device::Event& done = *done_[static_cast<std::size_t>(k % 2)];
            if (k > 1) {
                done.wait_host();
                fetch();
            }
            if (k == 1) { // times of the update must be read before a second mark comes after it
                if (playing.due != nullptr) {
                    playing.due->after_update->wait_host();
                }
                read_step(playing);
            }
            device().mark_time(compute());
            if (k == 0) {
                events.begun->record(compute());
            }
            enqueue(ends, done);
        }
        if (ends.reducer != nullptr) {
            ends.reducer->wait_reduced(compute());
        }
        events.reduced->record(compute());
        p_.trainer.optimizer().sum_squares(compute());
        summed_->record(compute());
        summed_->wait_host();
        read_step(playing);
        while (fetched < passes) {
            fetch();
        }
        end_step(ends, events);
        playing.due = &events;
        collected(step);
    }
    compute().sync();
    read_step(playing);
    return playing.steps;
}

double TrainRehearsal::update_s() {
    return ending_ == Ending::leave ? p_.trainer.optimizer().time_update(compute()) : 0;
}

} // namespace foregather::job
