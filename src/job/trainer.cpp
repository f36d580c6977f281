// SPDX-License-Identifier: Apache-2.0
// Construction in the order in which parts need each other, and draining in reverse.
#include "trainer.hpp"

#include <cstdio>

#include <foregather/kernels/training.hpp>

namespace foregather::job {

Trainer::Trainer(const Parts& parts)
    : p_(parts), plan_(arena_plan(parts.inputs.chain, parts.topology.shard_size(), parts.work.needs,
                                  parts.work.weights)) {
    device::Device& device = p_.backend.device();
    const model::Chain& chain = p_.inputs.chain;
    home_ = std::make_unique<WeightsHome>(
        chain, p_.transport, p_.topology, p_.backend, p_.sections.comm,
        WeightsHome::Layout{plan_, p_.work.weights, p_.schedule.slots, false});
    if (p_.topology.shard_size() > 1) {
        reductions_ = p_.backend.reduce_communicator(p_.topology, p_.sections.comm,
                                                     p_.transport.name == "shared");
    }
    if (p_.topology.replicas() > 1) {
        replicas_ = p_.backend.replica_communicator(p_.topology, p_.sections.comm);
    }
    allocate_gradients(); // collective where gradients are read in place
    p_.control.together([&] {
        transformer_ = std::make_unique<model::TrainableTransformer>(
            p_.inputs.config, chain, device, training_limits(p_.work));
        p_.backend.kernels().prepare(transformer_->products());
        compute_ = device.stream("compute", device::Priority::normal);
        reduce_ = device.stream("reduce", device::Priority::high);
        optimizer_ = std::make_unique<Optimizer>(
            Optimizer::Parts{chain, plan_, p_.topology.shard_rank(),
                             p_.sections.train.decay == "all" ? Decay::all : Decay::matrices,
                             p_.work.weights,
                             [this](base::UnitId unit) { return home_->part_of(unit); }, device,
                             p_.backend.kernels()},
            *compute_);
        reducer_ =
            make_reducer(p_.sections.output.timeline ? p_.sections.output.timeline_passes : 0);
        open_sources();
        compute_->sync();
    });
}

void Trainer::allocate_gradients() {
    device::Device& device = p_.backend.device();
    const auto allocate = [&](base::Elements n, base::DType type, const char* purpose) {
        const base::Bytes size = base::bytes_of(n, type);
        return reductions_ ? reductions_->allocate(device, size, purpose)
                           : device.allocate(size, purpose);
    };
    slots_ = allocate(2 * plan_.largest_unit, base::DType::f32, "gradient slots");
    if (reductions_ && p_.work.reduce != base::DType::f32) {
        rounded_ = allocate(plan_.largest_unit, p_.work.reduce, "a unit's rounded gradient");
    }
    if (reductions_) {
        part_ = device.allocate(base::bytes_of(plan_.largest_part, p_.work.reduce),
                                "a part that was reduced");
    }
}

base::View<float> Trainer::gradient_slots() const {
    return {reinterpret_cast<float*>(slots_->data()),
            static_cast<std::size_t>(2 * plan_.largest_unit)};
}

std::unique_ptr<schedule::GradientReducer> Trainer::make_reducer(std::int64_t timeline_passes) {
    const base::DType type = p_.work.reduce;
    const base::Elements unit = plan_.largest_unit;
    schedule::GradientReducer::Memory memory;
    memory.slots = gradient_slots();
    memory.accumulator = optimizer_->gradients();
    if (reductions_) {
        memory.part = {part_->data(), plan_.largest_part, type};
        if (type != base::DType::f32) {
            memory.rounded = {rounded_->data(), unit, type};
        }
    }
    kernels::TrainingKernels& kernels = p_.backend.kernels().training();
    schedule::GradientReducer::Arithmetic arithmetic{
        [&kernels](base::View<const float> from, base::Slab to, device::Stream& stream) {
            kernels.convert(from, to, stream);
        },
        [&kernels](base::ConstSlab from, base::View<float> to, device::Stream& stream) {
            kernels.add(from, to, stream);
        },
        [&kernels](base::View<float> what, device::Stream& stream) {
            kernels.clear(what, stream);
        }};
    return std::make_unique<schedule::GradientReducer>(
        p_.inputs.chain.units, plan_, memory, std::move(arithmetic),
        schedule::GradientReducer::Groups{reductions_.get(), replicas_.get()}, p_.backend.device(),
        *reduce_, timeline_passes);
}

void Trainer::open_sources() {
    const std::int64_t kept = p_.sections.output.timeline ? p_.sections.output.timeline_passes : 0;
    source_ = &home_->open_source({p_.schedule.plan, p_.backend.judged_compute_ns(), kept});
    if (p_.inputs.evaluation) {
        evaluation_ = &home_->open_source({plan_evaluation_pass(p_.inputs.chain, p_.schedule),
                                           p_.backend.judged_compute_ns(), 0});
    }
}

void Trainer::reopen_sources() {
    home_->resize_slots(p_.topology, p_.schedule.slots);
    open_sources();
}

Trainer::~Trainer() {
    const bool failed = std::uncaught_exceptions() > exceptions_at_start_;
    for (const auto* communicator : {&reductions_, &replicas_}) {
        if (failed && *communicator) {
            (*communicator)->abort();
        }
    }
    for (device::Stream* stream : {compute_.get(), reduce_.get()}) {
        try {
            if (stream != nullptr) {
                stream->sync();
            }
        } catch (const std::exception& error) {
            if (!failed) { // else it is told by now
                std::fprintf(stderr, "foregather: at the end of the run: %s\n", error.what());
            }
        }
    }
    compute_.reset();
    reduce_.reset();
}

ShardMemory Trainer::memory() {
    Optimizer& o = *optimizer_;
    return {p_.inputs.chain.units,
            plan_,
            p_.topology.shard_rank(),
            p_.topology.shard_size(),
            p_.topology.replica() == 0,
            [&o](base::UnitId unit) { return o.weights(unit); },
            [&o](base::UnitId unit) { return o.first_moment(unit); },
            [&o](base::UnitId unit) { return o.second_moment(unit); },
            p_.backend.device()};
}

void Trainer::publish() {
    optimizer_->publish(*compute_);
    compute_->sync();
    home_->publish();
}

} // namespace foregather::job
