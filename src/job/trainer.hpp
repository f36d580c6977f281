// SPDX-License-Identifier: Apache-2.0
// What computes in a training run, put together: weights, optimizer, gradients' way, the
// transformer and the sources it reads. When it runs, and what is told of it, is the job's.
#pragma once

#include <exception>
#include <memory>

#include <foregather/schedule/gradient_reducer.hpp>

#include "checkpoints.hpp"
#include "optimizer.hpp"
#include "train_plan.hpp"
#include "weights_home.hpp"

namespace foregather::job {

class Trainer {
public:
    struct Parts { // all must outlive the trainer
        const deck::Sections& sections;
        const TrainInputs& inputs;
        const mesh::Topology& topology;
        const mesh::Control& control;
        backend::Backend& backend;
        const Transport& transport;
        const TrainSchedule& schedule;
        const TrainWork& work;
    };
    // Collective; blocks. Allocates all that training needs on this rank and opens its
    // communicators.
    explicit Trainer(const Parts& parts);
    // Drains the streams before what their work uses goes.
    ~Trainer();
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    // Where checkpoints find what they save. Must not outlive the trainer.
    ShardMemory memory();
    // The fp32 weights of memory() are loaded: rounds them where the arena is of another type, and
    // lets other ranks read them. Blocks.
    void publish();

    // The schedule of the parts has changed: slots and sources for it in place of those there are.
    // Nothing may be in flight. Collective; blocks.
    void reopen_sources();

    WeightsHome& home() { return *home_; }
    model::TrainableTransformer& transformer() { return *transformer_; }
    schedule::TimedSource& source() { return *source_; }
    schedule::TimedSource* evaluation() { return evaluation_; }
    schedule::GradientReducer& reducer() { return *reducer_; }
    // One beside it, on the same memory and streams: while one is in use, all of the other must be
    // collected. timeline_passes: spans kept.
    std::unique_ptr<schedule::GradientReducer> make_reducer(std::int64_t timeline_passes);
    base::View<float> gradient_slots() const; // [2][largest unit]
    Optimizer& optimizer() { return *optimizer_; }
    device::Stream& compute() { return *compute_; }
    const comm::Communicator* reductions() const { return reductions_.get(); }
    const comm::Communicator* replicas() const { return replicas_.get(); }

private:
    void allocate_gradients();
    void open_sources();

    int exceptions_at_start_ = std::uncaught_exceptions();
    Parts p_;
    shard::ArenaPlan plan_;
    std::unique_ptr<WeightsHome> home_;
    std::unique_ptr<comm::Communicator> reductions_, replicas_;
    std::unique_ptr<model::TrainableTransformer> transformer_;
    std::unique_ptr<Optimizer> optimizer_;
    std::unique_ptr<device::Memory> slots_, rounded_, part_; // of gradients
    std::unique_ptr<device::Stream> compute_, reduce_;
    std::unique_ptr<schedule::GradientReducer> reducer_;
    schedule::TimedSource* source_ = nullptr; // both owned by home_
    schedule::TimedSource* evaluation_ = nullptr;
};

} // namespace foregather::job
