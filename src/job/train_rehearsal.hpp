// SPDX-License-Identifier: Apache-2.0
// Steps as job train makes them, forward, backward, reductions and the optimizer, whose updates
// change no weight.
#pragma once

#include <array>

#include "pack_buffers.hpp"
#include "rehearsal.hpp"
#include "trainer.hpp"

namespace foregather::job {

class TrainRehearsal final : public Rehearsal {
public:
    // How a step ends. update: AdamW at rate 0 without decay, which leaves the weights as they are
    // and the moments not. leave: nothing is updated; update_s() says how long it would take.
    enum class Ending { update, leave };
    struct Parts { // all must outlive the rehearsal
        Trainer& trainer;
        const deck::TrainSection& section;
        const mesh::Control& control;
        backend::Backend& backend;
    };
    // Allocates inputs of packs of up to so many tokens. `plan` is that of the trainer's passes.
    TrainRehearsal(const Parts& parts, const schedule::Plan& plan, base::Elements tokens,
                   Ending ending);

    void take(const PackInputs& inputs) override;
    std::vector<StepSeconds> play(const Ends& ends, std::int64_t steps,
                                  const Collected& collected) override;
    std::unique_ptr<schedule::GradientReducer> reducer() override {
        return p_.trainer.make_reducer(all_passes);
    }
    bool replicas() const override { return p_.trainer.replicas() != nullptr; }
    double update_s() override;

private:
    struct StepEvents {
        std::unique_ptr<device::Event> begun, reduced, before_update, after_update;
    };
    struct Playing;
    void enqueue(const Ends& ends, device::Event& done);
    void end_step(const Ends& ends, StepEvents& events);
    // Of the step before, once its events are past.
    void read_step(Playing& playing);

    Parts p_;
    Ending ending_;
    PackBuffers upload_;
    PackBuffers::Views views_;
    device::Buffer<double> loss_;
    device::HostBuffer<double> loss_on_host_;
    std::array<std::unique_ptr<device::Event>, 2> done_; // of passes in flight
    std::array<StepEvents, 2> events_;                   // of steps by turns
    std::unique_ptr<device::Event> summed_;
    float scale_ = 1;
    Drain drain_{compute()};
};

} // namespace foregather::job
