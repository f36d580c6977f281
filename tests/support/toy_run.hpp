// SPDX-License-Identifier: Apache-2.0
// A model without maths for tests of weight sources: units of known contents, and a compute that
// checks the unit it was given when it begins and again when it ends. What must come out is said in
// the tests.
#pragma once

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <foregather/comm/communicator.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/device/host_stream.hpp>
#include <foregather/mesh/control.hpp>
#include <foregather/mesh/window.hpp>
#include <foregather/schedule/source.hpp>
#include <foregather/shard/layout.hpp>

namespace foregather::tests {

struct ToyModel {
    std::vector<shard::UnitSpec> units;
    std::vector<base::UnitId> uses;
};

// Units of different sizes, around `elements`; the first `tied` of them are used again at the end,
// in descending order.
inline ToyModel toy_model(int units, int tied, base::Elements elements = 700) {
    ToyModel model;
    for (int u = 0; u < units; ++u) {
        shard::UnitSpec unit;
        unit.name = "unit." + std::to_string(u);
        const base::Elements rows = elements + 331 * ((u * 5) % 7);
        unit.append("tensor." + std::to_string(u), {rows}, 0, rows);
        model.units.push_back(unit);
        model.uses.push_back(u);
    }
    for (int u = tied - 1; u >= 0; --u) {
        model.uses.push_back(u);
    }
    return model;
}

// Element `e` of a unit; padding is zero.
inline float toy_value(const shard::UnitSpec& unit, base::UnitId id, base::Elements e) {
    return e < unit.elements
               ? static_cast<float>(1 + (id * 1'000'003 + static_cast<int>(e) * 7) % 9'999'991)
               : 0.0F;
}

// What the computes of one rank saw. Written on the compute stream; read after its sync.
struct ToyWatch {
    std::int64_t computes = 0;
    std::int64_t wrong = 0; // elements that were not the unit's, at a begin or an end
    std::uint64_t sum =
        14'695'981'039'346'656'037U; // FNV-1a over all that was computed with, in order

    void look(base::ConstSlab weights, const shard::UnitSpec& unit, base::UnitId id) {
        const auto* values = reinterpret_cast<const float*>(weights.data);
        for (base::Elements e = 0; e < weights.n; ++e) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, values + e, sizeof(bits));
            sum = (sum ^ bits) * 1'099'511'628'211U;
            wrong += values[e] != toy_value(unit, id, e) ? 1 : 0;
        }
        wrong += weights.n < unit.elements ? 1 : 0;
    }
};

// The sum that a rank must end with after `passes` passes that it computes in: of the contents
// alone.
inline std::uint64_t toy_sum(const ToyModel& model, const shard::ArenaPlan& plan,
                             std::int64_t passes) {
    ToyWatch watch;
    for (std::int64_t pass = 0; pass < passes; ++pass) {
        for (const base::UnitId id : model.uses) {
            const auto at = static_cast<std::size_t>(id);
            std::vector<float> whole(static_cast<std::size_t>(plan.units[at].layout.padded()));
            for (std::size_t e = 0; e < whole.size(); ++e) {
                whole[e] = toy_value(model.units[at], id, static_cast<base::Elements>(e));
            }
            watch.look(base::slab(base::View<const float>(whole)), model.units[at], id);
            watch.look(base::slab(base::View<const float>(whole)), model.units[at], id);
        }
    }
    return watch.sum;
}

struct ToyOptions {
    int depth = 1;
    std::int64_t passes = 3;
    std::int64_t judged_compute_ns = 2'000'000;
    std::function<bool(std::int64_t pass)> has_tokens = [](std::int64_t) { return true; };
    std::function<std::chrono::microseconds(std::int64_t use)> compute_time = [](std::int64_t) {
        return std::chrono::microseconds(0);
    };
};

inline schedule::SourceOptions source_options(const ToyModel& model, const ToyOptions& options) {
    return {schedule::forward_plan(model.uses, options.passes, options.depth),
            options.judged_compute_ns, options.passes};
}

// Runs all passes over a source the way a job does: two passes in flight at most, the results of a
// pass read when the next is enqueued.
inline void run_passes(
    schedule::TimedSource& source, const ToyModel& model, const ToyOptions& options,
    device::Stream& compute, ToyWatch& watch, const std::function<void()>& mark_time = [] {}) {
    std::int64_t use = 0;
    std::deque<std::future<void>> done; // of passes that have not been collected
    const auto collect = [&] {
        done.front().wait();
        done.pop_front();
        source.collect_pass();
    };
    for (std::int64_t pass = 0; pass < options.passes; ++pass) {
        const bool has_tokens = options.has_tokens(pass);
        mark_time();
        source.begin_pass(has_tokens);
        for (const base::UnitId id : model.uses) {
            const base::ConstSlab weights = source.acquire(id, compute);
            if (has_tokens) {
                const auto time = options.compute_time(use);
                device::host_stream(compute).enqueue([&watch, &model, weights, id, time] {
                    const auto& unit = model.units[static_cast<std::size_t>(id)];
                    watch.look(weights, unit, id);
                    std::this_thread::sleep_for(time);
                    watch.look(weights, unit, id); // nobody wrote there meanwhile
                    ++watch.computes;
                });
            }
            source.release(id, compute);
            ++use;
        }
        const auto end = std::make_shared<std::promise<void>>();
        done.push_back(end->get_future());
        device::host_stream(compute).enqueue([end] { end->set_value(); });
        if (pass > 0) {
            collect();
        }
    }
    if (options.passes > 0) {
        collect();
    }
    compute.sync();
}

// A Prefetcher over the toy model, with its device, streams and memory.
class ToyRun {
public:
    // node: for communicators that gather for a node's ranks together; all ranks of it call this.
    ToyRun(comm::Communicator& communicator, ToyModel model, const ToyOptions& options,
           MPI_Comm node = MPI_COMM_SELF)
        : model_(std::move(model)), options_(options), plan_(model_.units, communicator.size()),
          slots_(schedule::Schedule(model_.uses, 1, options.depth).slots()), node_(node),
          shards_(node, base::bytes_of(node_.size() * plan_.shard_elements, base::DType::f32)),
          slots_memory_(node, base::bytes_of(slots_ * plan_.largest_unit, base::DType::f32)) {
        fill_shards(communicator.rank());
        prefetcher_ = std::make_unique<schedule::Prefetcher>(
            source_options(model_, options_), model_.units, plan_,
            schedule::Prefetcher::GatherMemory{[this](base::UnitId unit) { return part_of(unit); },
                                               floats(slots_memory_, slots_ * plan_.largest_unit)},
            communicator, *device_, *gather_);
        node_.barrier(); // all parts of the node are there
    }

    const ToyWatch& run() {
        run_passes(*prefetcher_, model_, options_, *compute_, watch_);
        gather_->sync();
        return watch_;
    }

    schedule::Prefetcher& prefetcher() { return *prefetcher_; }
    device::Device& device() { return *device_; }
    device::Stream& compute() { return *compute_; }
    device::Stream& gather() { return *gather_; }
    const ToyModel& model() const { return model_; }
    const shard::ArenaPlan& plan() const { return plan_; }
    std::uint64_t expected_sum() const { return toy_sum(model_, plan_, options_.passes); }

private:
    static base::Slab floats(const mesh::SharedWindow& window, base::Elements n) {
        return {window.data(), n, base::DType::f32};
    }
    // Parts of the node's ranks side by side, unit by unit.
    base::Slab part_of(base::UnitId unit) const {
        const auto& place = plan_.units[static_cast<std::size_t>(unit)];
        const base::Elements n = place.layout.per_rank();
        return floats(shards_, node_.size() * plan_.shard_elements)
            .part(node_.size() * place.in_shard_arena + node_.rank() * n, n);
    }
    void fill_shards(int rank) {
        for (std::size_t u = 0; u < model_.units.size(); ++u) {
            const base::Slab part = part_of(static_cast<base::UnitId>(u));
            for (base::Elements e = 0; e < part.n; ++e) {
                part.f32()[e] =
                    toy_value(model_.units[u], static_cast<base::UnitId>(u), rank * part.n + e);
            }
        }
    }

    ToyModel model_;
    ToyOptions options_;
    shard::ArenaPlan plan_;
    int slots_;
    mesh::Control node_;
    mesh::SharedWindow shards_;
    mesh::SharedWindow slots_memory_;
    ToyWatch watch_;
    std::unique_ptr<device::Device> device_ = device::make_host_device(1);
    std::unique_ptr<device::Stream> compute_ = device_->stream("compute", device::Priority::normal);
    std::unique_ptr<device::Stream> gather_ = device_->stream("gather", device::Priority::high);
    std::unique_ptr<schedule::Prefetcher> prefetcher_;
};

} // namespace foregather::tests
