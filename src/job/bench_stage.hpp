// SPDX-License-Identifier: Apache-2.0
// What computes in a bench over one transport: weights, slots, the job's parts and its rehearsal.
// When it runs, and what is measured of it, is decided elsewhere.
#pragma once

#include <memory>

#include <foregather/backend/backend.hpp>
#include <foregather/mesh/watch.hpp>

#include "bench_plan.hpp"
#include "rehearsal.hpp"
#include "weights_home.hpp"

namespace foregather::job {

class BenchStage {
public:
    struct Parts { // all must outlive the stage
        const BenchInputs& inputs;
        const BenchPlan& plan;
        const mesh::Topology& topology;
        const mesh::Control& control;
        backend::Backend& backend;
        mesh::Watch& watch;
        const ParamType& param;
        int threads = 1;
        backend::Needs needs{};
    };
    virtual ~BenchStage() = default;
    BenchStage(const BenchStage&) = delete;
    BenchStage& operator=(const BenchStage&) = delete;

    // Reads this rank's parts. Collective; blocks.
    virtual void load(io::WeightsFile& file) = 0;
    // Copies them from a stage whose memory the host can read. Collective; blocks.
    virtual void take_weights(BenchStage& from) = 0;

    virtual WeightsHome& home() = 0;
    virtual Rehearsal& rehearsal() = 0;
    virtual schedule::GradientReducer* reducer() { return nullptr; }
    virtual device::Stream& compute() = 0;
    const Transport& transport() const { return transport_; }

protected:
    BenchStage(const Parts& parts, const Transport& transport) : p_(parts), transport_(transport) {}

    Parts p_;
    Transport transport_;
};

// Collective; blocks. Allocates all that the bench needs on this rank.
std::unique_ptr<BenchStage> open_stage(const BenchStage::Parts& parts, const Transport& transport);

} // namespace foregather::job
