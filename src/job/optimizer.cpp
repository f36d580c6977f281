// SPDX-License-Identifier: Apache-2.0
// Ranges of shards through the kernels, in an order that the layout alone decides.
#include "optimizer.hpp"

namespace foregather::job {
namespace {

template <class T>
base::View<T> range_of(base::View<T> part, base::Range range) {
    return part.subspan(static_cast<std::size_t>(range.begin),
                        static_cast<std::size_t>(range.size()));
}

} // namespace

Optimizer::Optimizer(Parts parts, device::Stream& compute) : p_(std::move(parts)) {
    device::Device& device = p_.device;
    const base::Elements n = p_.plan.shard_elements;
    master_ = {device, p_.weights == base::DType::f32 ? 0 : n, "fp32 weights of the optimizer"};
    first_ = {device, n, "first moments"};
    second_ = {device, n, "second moments"};
    gradient_ = {device, n, "this rank's part of the gradient"};
    squares_ = {device, 1, "sum of squares"};
    squares_on_host_ = {device, 1, "sum of squares"};
    begin_ = device.event();
    end_ = device.event();
    name_ = device.range_name("optimizer");
    for (std::size_t u = 0; u < p_.chain.units.size(); ++u) {
        ranges_.push_back(
            shard_ranges(p_.chain.units[u], p_.plan.units[u].layout, p_.shard_rank, p_.decay));
    }
    kernels::TrainingKernels& kernels = p_.kernels.training();
    for (const device::Buffer<float>* zero : {&first_, &second_, &gradient_}) {
        kernels.clear(zero->view(), compute);
    }
}

base::View<float> Optimizer::of(base::UnitId unit, const device::Buffer<float>& buffer) const {
    const auto& place = p_.plan.units[static_cast<std::size_t>(unit)];
    return range_of(buffer.view(),
                    {place.in_shard_arena, place.in_shard_arena + place.layout.per_rank()});
}

base::View<float> Optimizer::weights(base::UnitId unit) const {
    if (p_.weights != base::DType::f32) {
        return of(unit, master_);
    }
    const base::Slab part = p_.in_arena(unit);
    return {part.f32(), static_cast<std::size_t>(part.n)};
}

void Optimizer::publish(device::Stream& compute) {
    if (p_.weights == base::DType::f32) {
        return;
    }
    for (base::UnitId unit = 0; unit < static_cast<base::UnitId>(ranges_.size()); ++unit) {
        p_.kernels.training().convert(weights(unit), p_.in_arena(unit), compute);
    }
}

void Optimizer::sum_squares(device::Stream& compute) {
    kernels::TrainingKernels& kernels = p_.kernels.training();
    auto into = kernels::Into::overwrite;
    for (std::size_t u = 0; u < ranges_.size(); ++u) {
        for (const ShardRange& range : ranges_[u]) {
            kernels.sum_of_squares(range_of(gradient(static_cast<base::UnitId>(u)), range.elements),
                                   into, squares_.view(), compute);
            into = kernels::Into::add;
        }
    }
    if (into == kernels::Into::overwrite) { // more ranks than parameters: a sum of nothing
        kernels.sum_of_squares({}, into, squares_.view(), compute);
    }
    p_.device.copy_out(base::View<const double>(squares_.view()), squares_on_host_.view(), compute);
}

void Optimizer::step(const kernels::AdamwStep& step, schedule::TimedSource& source,
                     device::Stream& compute) {
    const device::Range range(p_.device, name_, step.step);
    begin_->record(compute);
    for (base::UnitId unit = 0; unit < static_cast<base::UnitId>(ranges_.size()); ++unit) {
        update(unit, step, compute);
        source.updated(unit, compute);
    }
    end_->record(compute);
    untold_ = true;
}

void Optimizer::update(base::UnitId unit, const kernels::AdamwStep& step, device::Stream& compute) {
    const bool rounds = p_.weights != base::DType::f32;
    for (const ShardRange& range : ranges_[static_cast<std::size_t>(unit)]) {
        kernels::AdamwStep own = step;
        own.weight_decay = range.decays ? step.weight_decay : 0;
        latest_ = own;
        latest_.weight_decay = step.weight_decay;
        const auto part = [&](base::View<float> whole) { return range_of(whole, range.elements); };
        const base::Slab copy =
            rounds ? p_.in_arena(unit).part(range.elements.begin, range.elements.size())
                   : base::Slab{};
        p_.kernels.training().adamw(part(weights(unit)), part(gradient(unit)),
                                    part(first_moment(unit)), part(second_moment(unit)), own, copy,
                                    compute);
    }
}

void Optimizer::skip(schedule::TimedSource& source, device::Stream& compute) {
    for (base::UnitId unit = 0; unit < static_cast<base::UnitId>(ranges_.size()); ++unit) {
        source.updated(unit, compute);
    }
}

double Optimizer::take_seconds() {
    if (!untold_) {
        return 0;
    }
    untold_ = false;
    end_->wait_host();
    return static_cast<double>(end_->time_ns() - begin_->time_ns()) * 1e-9;
}

double Optimizer::time_update(device::Stream& compute) {
    const auto quarter = static_cast<std::int64_t>(gradient_.view().size() / 4);
    const auto part = [&](std::int64_t k) {
        return range_of(gradient_.view(), {k * quarter, (k + 1) * quarter});
    };
    kernels::TrainingKernels& kernels = p_.kernels.training();
    kernels.clear(gradient_.view(), compute);
    begin_->record(compute);
    kernels.adamw(part(0), part(1), part(2), part(3), {0, 0.9, 0.95, 1e-8, 0, 1, 1}, {}, compute);
    end_->record(compute);
    end_->wait_host();
    untold_ = false;
    return 4 * static_cast<double>(end_->time_ns() - begin_->time_ns()) * 1e-9;
}

base::Bytes Optimizer::state_bytes(const shard::ArenaPlan& plan, base::DType weights) {
    const std::int64_t arrays = weights == base::DType::f32 ? 3 : 4;
    return arrays * base::bytes_of(plan.shard_elements, base::DType::f32);
}

} // namespace foregather::job
