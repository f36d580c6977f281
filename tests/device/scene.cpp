// SPDX-License-Identifier: Apache-2.0
// Passes are enqueued and collected as the program's own loop does it: two in flight, a mark of
// time for each.
#include "scene.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

namespace foregather::device_bench {
namespace {

constexpr base::DType weights_type = base::DType::bf16;

model::Limits limits_of(Elements tokens, Elements document, Elements row_multiple) {
    return {.tokens = tokens,
            .document = document,
            .weights = weights_type,
            .row_multiple = row_multiple};
}

} // namespace

Pack::Input Pack::input(Bench& bench, const std::vector<std::int32_t>& values) {
    device::Device& device = *bench.device;
    Input made{{device, std::ssize(values), "a pack"}, {device, std::ssize(values), "a pack"}};
    std::copy(values.begin(), values.end(), made.host.view().begin());
    device.copy_in(base::View<const std::int32_t>(made.host.view()), made.device.view(),
                   *bench.compute);
    return made;
}

Pack::Pack(Bench& bench, Elements tokens, Elements document, std::int64_t vocabulary) {
    std::mt19937_64 random(7);
    std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(vocabulary - 1));
    std::vector<std::int32_t> ids, positions, offsets, rows, targets;
    for (Elements t = 0; t < tokens; ++t) {
        const Elements position = t % document;
        ids.push_back(any(random));
        positions.push_back(static_cast<std::int32_t>(position));
        if (position == 0) {
            offsets.push_back(static_cast<std::int32_t>(t));
        } else { // the token before predicts this one
            rows.push_back(static_cast<std::int32_t>(t - 1));
            targets.push_back(ids.back());
        }
    }
    offsets.push_back(static_cast<std::int32_t>(tokens));
    ids_ = input(bench, ids);
    positions_ = input(bench, positions);
    offsets_ = input(bench, offsets);
    rows_ = input(bench, rows);
    targets_ = input(bench, targets);
    logprob_ = {*bench.device, rows_.n(), "log-probabilities"};
    greedy_ = {*bench.device, rows_.n(), "marks of greedy tokens"};
}

model::PackView Pack::view() const {
    kernels::HeadResults results;
    results.logprob = logprob_.view();
    results.greedy = greedy_.view();
    return {ids_.device.view(),  positions_.device.view(), offsets_.device.view(),
            rows_.device.view(), targets_.device.view(),   results};
}

std::int64_t Pack::not_finite(Bench& bench) const {
    const device::HostBuffer<float> host(*bench.device, logprob_.size(), "log-probabilities");
    bench.device->copy_out(base::View<const float>(logprob_.view()), host.view(), *bench.compute);
    bench.compute->sync();
    return std::count_if(host.view().begin(), host.view().end(),
                         [](float value) { return !std::isfinite(value); });
}

Scene::Scene(Bench& bench, model::ModelConfig config, Elements tokens, Elements document)
    : bench_(bench), config_(std::move(config)), chain_(model::make_chain(config_, {0})),
      plan_(chain_.units, 1) {
    transformer_.emplace(config_, chain_, *bench.device,
                         limits_of(tokens, document, bench.kernels->row_multiple()));
    bench.kernels->prepare(transformer_->products());
}

base::Bytes Scene::bytes(const model::ModelConfig& config, Elements tokens, Elements document) {
    const shard::ArenaPlan plan(model::make_chain(config, {0}).units, 1);
    return base::bytes_of(plan.whole_elements, weights_type) +
           model::Transformer::activation_bytes(config, limits_of(tokens, document, 256));
}

schedule::SourceOptions Scene::source_options(int depth, int passes) const {
    return {.plan = schedule::forward_plan(chain_.unit_order(), passes, depth),
            .judged_compute_ns = 20'000, // as the CUDA backend judges
            .timeline_passes = passes};
}

void Scene::fill_weights(base::Slab arena) {
    bench_.normals->fill(arena, weight_scale, *bench_.compute);
    for (std::size_t u = 0; u < chain_.units.size(); ++u) {
        for (const shard::TensorPart& part : chain_.units[u].parts) {
            if (part.shape.size() == 1) { // of a norm
                bench_.normals->ones(
                    arena.part(plan_.units[u].in_whole_arena + part.offset, part.elements()),
                    *bench_.compute);
            }
        }
    }
    bench_.compute->sync();
}

Scene::Run Scene::run(schedule::TimedSource& source, const Pack& pack, kernels::Kernels& kernels,
                      int passes) {
    device::Device& device = *bench_.device;
    device::Stream& compute = *bench_.compute;
    std::array<std::unique_ptr<device::Event>, 2> done = {device.event(), device.event()};
    Stopwatch watch(bench_.events);
    for (int pass = 0; pass < passes + 2; ++pass) {
        const auto flight = static_cast<std::size_t>(pass) % 2;
        if (pass >= 2) {
            done[flight]->wait_host();
            source.collect_pass();
        }
        if (pass < passes) {
            device.mark_time(compute);
            source.begin_pass(true);
            transformer_->forward(source, pack.view(), kernels, compute);
            done[flight]->record(compute);
            if (pass == 0) {
                watch.start(compute);
            }
            if (pass == passes - 1) {
                watch.stop(compute);
            }
        }
    }
    Run run{watch.seconds() / (passes - 1), 0, source.figures(), {}};
    for (const schedule::Span& span : source.spans()) {
        const auto& name = chain_.units[static_cast<std::size_t>(span.unit)].name;
        if (span.kind == schedule::SpanKind::compute && span.pass > 0 &&
            name.rfind("layer.", 0) == 0) {
            run.layers_s += static_cast<double>(span.end_ns - span.begin_ns) * 1e-9;
        }
    }
    run.layers_s /= passes - 1;
    return run;
}

} // namespace foregather::device_bench
