// SPDX-License-Identifier: Apache-2.0
// The training run itself: steps of passes over packs, the decision at the end of each, and
// evaluations between them. What is told, stored or saved of a step is the caller's.
#pragma once

#include <array>
#include <functional>
#include <memory>

#include <foregather/backend/backend.hpp>
#include <foregather/deck/sections.hpp>
#include <foregather/io/checkpoint_file.hpp>
#include <foregather/mesh/topology.hpp>
#include <foregather/mesh/watch.hpp>
#include <foregather/model/training.hpp>
#include <foregather/schedule/gradient_reducer.hpp>
#include <foregather/schedule/source.hpp>

#include "data_order.hpp"
#include "learning_rate.hpp"
#include "optimizer.hpp"
#include "pack_buffers.hpp"
#include "train_inputs.hpp"

namespace foregather::job {

// What an optimizer step was, the same on every rank but for this rank's times.
struct StepFacts {
    std::int64_t step = 0;    // from 1
    double loss = 0;          // nat: the sum over the step's targets / their number
    double gradient_norm = 0; // before clipping
    double learning_rate = 0;
    std::int64_t targets = 0, tokens = 0; // over all ranks
    std::int64_t passes = 0;              // of each rank
    bool applied = true;
    double seconds = 0; // from the end of the step before
    double exposed_gather_s = 0, exposed_reduce_s = 0;
};
struct Evaluation {
    std::int64_t step = 0;
    double loss = 0; // nat, over `targets`
    std::int64_t targets = 0;
};

// What the loop spent and did on this rank.
struct LoopFigures {
    std::int64_t steps = 0, not_applied = 0, passes = 0, packs = 0, evaluations = 0;
    std::int64_t tokens = 0, targets = 0; // of this rank's packs
    double attended = 0;                  // over documents: length x (length + 1)
    std::int64_t longest_pack = 0;        // tokens
    double run_s = 0;       // steps and evaluations, without what the caller did between them
    double wait_s = 0;      // the main thread waited for passes
    double step_wait_s = 0; // of it, for the sums that a step is decided by
    double optimizer_s = 0; // the compute stream updated weights
    double evaluate_s = 0;
    int allocations = 0; // while running
};

class TrainLoop {
public:
    struct Parts { // all must outlive the loop
        const deck::Sections& sections;
        const TrainInputs& inputs;
        const mesh::Topology& topology;
        const mesh::Control& control;
        backend::Backend& backend;
        model::TrainableTransformer& transformer;
        const schedule::Plan& plan;        // of a pass, with both depths
        schedule::TimedSource& source;     // of steps
        schedule::TimedSource* evaluation; // of evaluations; nullptr: there are none
        schedule::GradientReducer& reducer;
        Optimizer& optimizer;
        device::Stream& compute;
        mesh::Watch& watch;
    };
    struct Hooks {
        // After each step, its update being enqueued; after each evaluation; and when all that
        // follows a step is done, before the next: true if the run is to stop there. Collective.
        std::function<void(const StepFacts&, const Batch&)> step;
        std::function<void(const Evaluation&)> evaluated;
        std::function<bool()> between;
    };
    // Allocates what two passes need. `state` is where the run begins, and goes on in it.
    TrainLoop(const Parts& parts, const BatchRule& rule, io::TrainingState& state, Hooks hooks);
    // Waits until nothing in flight uses its memory, also while an exception is on its way.
    ~TrainLoop();
    TrainLoop(const TrainLoop&) = delete;
    TrainLoop& operator=(const TrainLoop&) = delete;

    // Collective; blocks. Ends at train.steps, where a hook says so, or when too many steps in a
    // row were not applied.
    void run();
    // Too many steps in a row were not applied.
    bool gave_up() const { return gave_up_; }
    // The run was stopped between two steps: nothing is on its way any more.
    bool stopped() const { return stopped_; }
    const LoopFigures& figures() const { return figures_; }

    static base::Elements most_tokens(const deck::Sections& sections, const TrainInputs& inputs);

private:
    struct Flight { // one pass in flight
        PackInputs inputs;
        PackBuffers upload;
        device::Buffer<double> loss;
        device::HostBuffer<double> loss_on_host;
        std::unique_ptr<device::Event> done;
    };
    struct Sums { // of a step or an evaluation on this rank
        double nll = 0;
        std::int64_t enqueued = 0, fetched = 0; // passes
    };
    std::int64_t next_stop() const; // the last step of the segment that begins now
    void run_segment(std::int64_t last_step);
    void run_step(const Batch& batch);
    void evaluate();
    bool evaluates_after(std::int64_t step) const;
    model::TrainingPack load(Flight& flight, const Items& items, const io::TokenFile& tokens,
                             base::View<const std::int64_t> pack);
    void enqueue(Sums& sums, base::View<const std::int64_t> pack, float scale);
    void fetch(Sums& sums, bool reduced);
    void decide(StepFacts& facts, double nll);
    double exposed_gather_s() const;
    Flight& flight(std::int64_t pass) { return flights_[static_cast<std::size_t>(pass % 2)]; }
    Division divide_batch(const Batch& batch) const;
    double now_s() const;
    void tell_underway() const;

    Parts p_;
    std::shared_ptr<device::Device::Look> look_; // while the main thread waits
    DataOrder order_;
    DataOrder ahead_; // the same, asked for steps to come
    LearningRate rate_;
    io::TrainingState& state_;
    Hooks hooks_;
    std::array<Flight, 2> flights_;
    std::unique_ptr<device::Event> summed_;
    double last_end_s_ = 0, exposed_gather_s_ = 0, exposed_reduce_s_ = 0;
    bool gave_up_ = false, stopped_ = false;
    LoopFigures figures_;
};

} // namespace foregather::job
