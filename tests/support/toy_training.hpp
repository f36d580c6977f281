// SPDX-License-Identifier: Apache-2.0
// A training run without maths for tests of weight sources and gradients: weights change with each
// optimizer step in a known way, gradients are known integers, and computes and optimizers check
// every element that they are given. What must come out is said in the tests.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <foregather/schedule/gradient_reducer.hpp>
#include <foregather/schedule/source.hpp>

#include "apart_device.hpp"
#include "toy_run.hpp"

namespace foregather::tests {

struct ToyTrainingOptions {
    int units = 5;
    int tied = 0; // of the first units, used again at the end
    int lookups = 1;
    int forward_depth = 1, backward_depth = 1;
    bool reshard = true;
    // Of each segment: after how many of its passes the optimizer runs.
    std::vector<std::vector<std::int64_t>> segments = {{1, 2, 3}};
    std::int64_t evaluation_passes =
        0; // of a source of its own, before each segment and at the end
    base::DType reduced = base::DType::f32;
    bool staged = false;   // parts lie in host memory and come up by a copy stream
    bool in_place = false; // of one rank: no gathers
    base::Elements elements = 300;
    std::uint64_t copy_seed = 0;
    std::chrono::microseconds most_copy_time{0};
    std::function<bool(int rank, std::int64_t pass)> has_tokens = [](int, std::int64_t) {
        return true;
    };
    std::function<std::chrono::microseconds()> compute_time = [] {
        return std::chrono::microseconds(0);
    };

    schedule::Plan plan() const {
        return {schedule::training_pass(toy_model(units, tied, elements).uses, lookups),
                0,
                forward_depth,
                backward_depth,
                {},
                reshard};
    }
};

// All integers that fp32 holds exactly, gradients (and sums of four) that bf16 does too.
inline float weight_value(const shard::UnitSpec& unit, base::UnitId id, base::Elements e,
                          std::int64_t optimizer_step) {
    return e < unit.elements ? toy_value(unit, id, e) + static_cast<float>(optimizer_step) : 0.0F;
}
inline float gradient_value(const shard::UnitSpec& unit, base::UnitId id, base::Elements e,
                            int rank, std::int64_t pass, std::int64_t position) {
    return e < unit.elements ? static_cast<float>(
                                   1 + (e * 7 + id * 13 + pass * 5 + position * 3 + rank * 11) % 61)
                             : 0.0F;
}

class ToyTraining {
public:
    struct Groups {
        comm::Communicator& gather;          // over the shard group
        comm::Communicator* shard = nullptr; // of reductions; nullptr: one rank holds all
        comm::Communicator* replicas = nullptr;
    };
    struct Wrong { // elements; written on the compute stream
        std::int64_t weights = 0, gradients = 0, slabs = 0, computes = 0;
    };

    ToyTraining(const Groups& groups, const ToyTrainingOptions& options)
        : options_(options), groups_(groups),
          model_(toy_model(options.units, options.tied, options.elements)),
          arena_(model_.units, groups.gather.size()),
          device_(options.copy_seed, options.most_copy_time),
          shards_(device_, arena_.shard_elements, "parts"),
          slots_(device_, training_slots() * arena_.largest_unit, "slots"),
          stages_(device_, options.staged ? 2 * arena_.largest_part : 0, "stages"),
          gradient_slots_(gradients(2 * arena_.largest_unit)),
          rounded_(gradients(arena_.largest_unit)),
          accumulator_(device_, arena_.shard_elements, "sums"),
          part_(device_, arena_.largest_part, "a reduced part") {
        for (std::size_t u = 0; u < model_.units.size(); ++u) {
            write_part(static_cast<base::UnitId>(u), 0);
        }
        std::fill(accumulator_.view().begin(), accumulator_.view().end(), -7e7F);
        source_ = make_source(options.plan());
        evaluation_ = make_source(schedule::forward_plan(model_.uses, 0, options.forward_depth));
        reducer_ = make_reducer();
    }

    const Wrong& run() {
        const int allocations = device_.allocations();
        for (const auto& ends : options_.segments) {
            evaluate();
            source_->begin_segment(ends.back(), ends);
            schedule::Plan plan = options_.plan();
            plan.passes = ends.back();
            plan.step_ends = ends;
            reducer_->begin_segment(plan);
            std::int64_t first = 0;
            for (const std::int64_t end : ends) {
                optimizer_step(end - first);
                first = end;
            }
        }
        evaluate();
        for (device::Stream* stream : {compute_.get(), gather_.get(), copy_.get(), reduce_.get()}) {
            stream->sync();
        }
        allocated_ = device_.allocations() - allocations;
        return wrong_;
    }

    schedule::TimedSource& source() { return *source_; }
    schedule::GradientReducer& reducer() { return *reducer_; }
    int allocated() const { return allocated_; } // while it ran
    std::int64_t steps() const { return step_; }
    std::int64_t passes() const { return pass_; }
    struct Interval {
        std::int64_t begin_ns, end_ns;
    };
    const std::vector<Interval>& optimizers() const { return optimizers_; } // when they ran
    int asked() const { return ready_; } // in place: how often a unit was waited for
    int told() const { return updated_; }

private:
    int rank() const {
        const int replica = groups_.replicas != nullptr ? groups_.replicas->rank() : 0;
        return replica * groups_.gather.size() + groups_.gather.rank();
    }
    int ranks() const {
        return groups_.gather.size() * (groups_.replicas != nullptr ? groups_.replicas->size() : 1);
    }
    // Where the communicator can reduce it.
    std::unique_ptr<device::Memory> gradients(base::Elements n) {
        const base::Bytes size = base::bytes_of(n, base::DType::f32);
        return groups_.shard != nullptr ? groups_.shard->allocate(device_, size, "gradients")
                                        : device_.allocate(size, "gradients");
    }
    static base::View<float> floats(const device::Memory& memory) {
        return {reinterpret_cast<float*>(memory.data()),
                static_cast<std::size_t>(memory.size().count) / sizeof(float)};
    }
    int training_slots() const { return schedule::Schedule(options_.plan()).slots(); }
    const shard::UnitSpec& spec(base::UnitId unit) const {
        return model_.units[static_cast<std::size_t>(unit)];
    }
    base::View<float> part_of(base::UnitId unit) const {
        const auto& place = arena_.units[static_cast<std::size_t>(unit)];
        return shards_.view().subspan(static_cast<std::size_t>(place.in_shard_arena),
                                      static_cast<std::size_t>(place.layout.per_rank()));
    }
    base::Elements
    first_of(base::UnitId unit) const { // element of the unit that our part begins at
        return groups_.gather.rank() *
               arena_.units[static_cast<std::size_t>(unit)].layout.per_rank();
    }
    void write_part(base::UnitId unit, std::int64_t step) {
        const base::View<float> part = part_of(unit);
        for (std::size_t e = 0; e < part.size(); ++e) {
            part[e] = weight_value(spec(unit), unit,
                                   first_of(unit) + static_cast<base::Elements>(e), step);
        }
    }

    std::unique_ptr<schedule::TimedSource> make_source(const schedule::Plan& plan) {
        const schedule::SourceOptions options{plan, 2'000'000, 1000};
        if (options_.in_place) {
            return std::make_unique<schedule::InPlaceSource>(
                options, arena_, base::slab(shards_.view()), device_,
                [this](base::UnitId, device::Stream&) { ++ready_; },
                [this](base::UnitId, device::Stream&) { ++updated_; });
        }
        schedule::StagedParts::Stages stages;
        if (options_.staged) {
            stages = {base::slab(stages_.view()), copy_.get()};
        }
        return std::make_unique<schedule::Prefetcher>(
            options, model_.units, arena_,
            schedule::Prefetcher::GatherMemory{
                [this](base::UnitId unit) { return base::ConstSlab(part_of(unit)); },
                base::slab(slots_.view()), stages},
            groups_.gather, device_, *gather_);
    }

    // Sums as kernels would: truncated to bf16 (the values are exact in it).
    std::unique_ptr<schedule::GradientReducer> make_reducer() {
        schedule::GradientReducer::Arithmetic arithmetic;
        arithmetic.convert = [](base::View<const float> x, base::Slab y, device::Stream& stream) {
            device::host_stream(stream).enqueue([x, y] {
                for (std::size_t e = 0; e < x.size(); ++e) {
                    std::uint32_t bits = 0;
                    std::memcpy(&bits, &x[e], sizeof(bits));
                    y.bf16()[e] = static_cast<std::uint16_t>(bits >> 16U);
                }
            });
        };
        arithmetic.add = [](base::ConstSlab x, base::View<float> y, device::Stream& stream) {
            device::host_stream(stream).enqueue([x, y] {
                for (std::size_t e = 0; e < y.size(); ++e) {
                    float value = 0;
                    if (x.type == base::DType::bf16) {
                        const std::uint32_t bits = static_cast<std::uint32_t>(x.bf16()[e]) << 16U;
                        std::memcpy(&value, &bits, sizeof(value));
                    } else {
                        value = x.f32()[e];
                    }
                    y[e] += value;
                }
            });
        };
        arithmetic.clear = [](base::View<float> x, device::Stream& stream) {
            device::host_stream(stream).enqueue([x] { std::fill(x.begin(), x.end(), 0.0F); });
        };
        schedule::GradientReducer::Memory memory{
            floats(*gradient_slots_), {}, {}, accumulator_.view()};
        memory.part = {reinterpret_cast<std::byte*>(part_.view().data()), arena_.largest_part,
                       options_.reduced};
        if (options_.reduced != base::DType::f32) {
            memory.rounded = {rounded_->data(), arena_.largest_unit, options_.reduced};
        }
        return std::make_unique<schedule::GradientReducer>(
            model_.units, arena_, memory, arithmetic,
            schedule::GradientReducer::Groups{groups_.shard, groups_.replicas}, device_, *reduce_,
            1000);
    }

    void look(base::ConstSlab weights, base::UnitId unit, std::int64_t step) {
        for (base::Elements e = 0; e < weights.n; ++e) {
            wrong_.weights += weights.f32()[e] != weight_value(spec(unit), unit, e, step) ? 1 : 0;
        }
        wrong_.slabs += weights.n < spec(unit).elements ? 1 : 0;
    }
    void fill(base::View<float> gradient, base::UnitId unit, std::int64_t pass,
              std::int64_t position, bool tokens) {
        for (std::size_t e = 0; e < gradient.size(); ++e) {
            gradient[e] = tokens ? gradient_value(spec(unit), unit, static_cast<base::Elements>(e),
                                                  rank(), pass, position)
                                 : 0.0F;
        }
    }

    // A compute reads its weights when it begins and when it ends, as does what it writes.
    void use(schedule::TimedSource& source, const schedule::Use& use, std::int64_t position,
             bool tokens) {
        const base::UnitId unit = use.unit;
        const base::ConstSlab weights = source.acquire(unit, *compute_);
        const bool backward = use.direction == schedule::Direction::backward;
        const base::View<float> gradient =
            backward ? reducer_->begin(unit, *compute_) : base::View<float>{};
        const auto time = options_.compute_time();
        device::host_stream(*compute_).enqueue([=, this, step = step_, pass = pass_] {
            const std::size_t half = gradient.size() / 2;
            wrong_.slabs += !use.needs_weights && weights.n != 0 ? 1 : 0;
            if (tokens && use.needs_weights) {
                look(weights, unit, step);
            }
            fill(gradient.first(half), unit, pass, position, tokens);
            std::this_thread::sleep_for(time);
            if (tokens && use.needs_weights) {
                look(weights, unit, step);
            }
            fill(gradient, unit, pass, position, tokens);
            ++wrong_.computes;
        });
        if (backward) {
            reducer_->end(unit, *compute_);
        }
        source.release(unit, *compute_);
    }

    void mark_done() {
        const auto end = std::make_shared<std::promise<void>>();
        done_.push_back(end->get_future());
        device::host_stream(*compute_).enqueue([end] { end->set_value(); });
    }
    void collect(schedule::TimedSource& source, std::size_t leave) {
        for (; done_.size() > leave; done_.pop_front()) {
            done_.front().wait();
            source.collect_pass();
            if (&source == source_.get()) {
                reducer_->collect_pass();
            }
        }
    }

    void optimizer_step(std::int64_t passes) {
        const std::vector<schedule::Use> uses = options_.plan().pass;
        const std::int64_t first = pass_;
        for (std::int64_t p = 0; p < passes; ++p) {
            device_.mark_time(*compute_);
            const bool tokens = options_.has_tokens(rank(), pass_);
            source_->begin_pass(tokens);
            for (std::size_t position = 0; position < uses.size(); ++position) {
                use(*source_, uses[position], static_cast<std::int64_t>(position), tokens);
            }
            ++pass_;
            if (p + 1 == passes) {
                reducer_->wait_reduced(*compute_);
            }
            mark_done();
            collect(*source_, p + 1 == passes ? 0 : 1);
        }
        ++step_;
        for (base::UnitId unit = 0; unit < options_.units; ++unit) {
            device::host_stream(*compute_).enqueue(
                [this, unit, first, last = pass_, step = step_, time = options_.compute_time()] {
                    const std::int64_t begin = device_.now_ns();
                    look_at_sum(unit, first, last);
                    std::this_thread::sleep_for(time);
                    write_part(unit, step);
                    optimizers_.push_back({begin, device_.now_ns()});
                });
            source_->updated(unit, *compute_);
        }
    }

    // Of our part, over all ranks, the passes of the step, and the uses of the unit.
    void look_at_sum(base::UnitId unit, std::int64_t first, std::int64_t last) {
        const std::vector<schedule::Use> uses = options_.plan().pass;
        const base::View<float> sum = reducer_->gradient_of(unit);
        for (std::size_t e = 0; e < sum.size(); ++e) {
            float expected = 0;
            for (std::int64_t pass = first; pass < last; ++pass) {
                for (std::size_t at = uses.size() / 2; at < uses.size(); ++at) {
                    for (int r = 0; r < ranks() && uses[at].unit == unit; ++r) {
                        expected +=
                            !options_.has_tokens(r, pass)
                                ? 0
                                : gradient_value(spec(unit), unit,
                                                 first_of(unit) + static_cast<base::Elements>(e), r,
                                                 pass, static_cast<std::int64_t>(at));
                    }
                }
            }
            wrong_.gradients += sum[e] != expected ? 1 : 0;
        }
    }

    void evaluate() {
        if (options_.evaluation_passes == 0) {
            return;
        }
        evaluation_->begin_segment(options_.evaluation_passes);
        for (std::int64_t p = 0; p < options_.evaluation_passes; ++p) {
            device_.mark_time(*compute_);
            evaluation_->begin_pass(true);
            for (const base::UnitId unit : model_.uses) {
                use(*evaluation_, {unit}, 0, true);
            }
            mark_done();
            collect(*evaluation_, 1);
        }
        collect(*evaluation_, 0);
    }

    ToyTrainingOptions options_;
    Groups groups_;
    ToyModel model_;
    shard::ArenaPlan arena_;
    ApartDevice device_;
    device::HostBuffer<float> shards_;
    device::Buffer<float> slots_, stages_;
    std::unique_ptr<device::Memory> gradient_slots_, rounded_;
    device::Buffer<float> accumulator_, part_;
    Wrong wrong_;
    std::vector<Interval> optimizers_;
    std::int64_t pass_ = 0, step_ = 0;
    int allocated_ = 0, ready_ = 0, updated_ = 0;
    std::deque<std::future<void>> done_; // of passes that have not been collected
    std::unique_ptr<device::Stream> compute_ = device_.stream("compute", device::Priority::normal);
    std::unique_ptr<device::Stream> gather_ = device_.stream("gather", device::Priority::high);
    std::unique_ptr<device::Stream> copy_ = device_.stream("copy", device::Priority::high);
    std::unique_ptr<device::Stream> reduce_ = device_.stream("reduce", device::Priority::high);
    std::unique_ptr<schedule::TimedSource> source_, evaluation_;
    std::unique_ptr<schedule::GradientReducer> reducer_;
};

} // namespace foregather::tests
