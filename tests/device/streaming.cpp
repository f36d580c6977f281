// SPDX-License-Identifier: Apache-2.0
// Layers streamed from page-locked host memory into slots, by the program's own prefetch, against
// the same layers resident: at how many tokens a step the copies vanish behind the compute.
#include <algorithm>

#include <foregather/comm/host_memory.hpp>

#include "scene.hpp"

namespace foregather::device_bench {
namespace {

constexpr int most_depth = 2;

struct Homes {
    Array resident;
    device::HostBuffer<std::byte> host; // the same weights
    Array slots;
    std::unique_ptr<comm::Communicator> copies;
    std::unique_ptr<device::Stream> gather;
};

Homes make_homes(Bench& bench, Scene& scene) {
    device::Device& device = *bench.device;
    const Elements n = scene.plan().whole_elements;
    constexpr auto type = base::DType::bf16;
    Homes homes{{device, n, type, "resident weights"},
                {device, base::bytes_of(n, type).count, "page-locked weights"},
                {device, (most_depth + 1) * scene.plan().largest_unit, type, "slots"},
                comm::make_host_memory_copies(device),
                device.stream("gather", device::Priority::high)};
    scene.fill_weights(homes.resident.slab());
    device.copy_out(base::View<const std::byte>(homes.resident.memory.view()), homes.host.view(),
                    *bench.compute);
    bench.compute->sync();
    return homes;
}

Scene::Run resident_run(Bench& bench, Scene& scene, Homes& homes, const Pack& pack, int passes) {
    schedule::InPlaceSource source(scene.source_options(0, passes), scene.plan(),
                                   homes.resident.slab(), *bench.device, {});
    return scene.run(source, pack, *bench.kernels, passes);
}

Scene::Run streamed_run(Bench& bench, Scene& scene, Homes& homes, const Pack& pack, int depth,
                        int passes) {
    const auto part = [&](base::UnitId unit) {
        const auto& place = scene.plan().units[static_cast<std::size_t>(unit)];
        const base::Slab all{homes.host.view().data(), scene.plan().whole_elements,
                             base::DType::bf16};
        return base::ConstSlab(all.part(place.in_whole_arena, place.layout.padded()));
    };
    schedule::Prefetcher source(scene.source_options(depth, passes), scene.chain().units,
                                scene.plan(), {part, homes.slots.slab()}, *homes.copies,
                                *bench.device, *homes.gather);
    Scene::Run run = scene.run(source, pack, *bench.kernels, passes);
    homes.gather->sync();
    run.copied = source.own_bytes();
    return run;
}

void measure(Bench& bench, Scene& scene, Homes& homes, Elements tokens, int depth) {
    const int passes = bench.options.tiny ? 3 : 4;
    const int pairs = bench.options.tiny ? 1 : 3;
    const Pack pack(bench, tokens, tokens, scene.config().vocabulary);
    std::vector<double> resident, streamed, ratios;
    schedule::PrefetchFigures figures;
    base::Bytes copied;                        // by the last run, which the figures are of
    for (int pair = 0; pair < pairs; ++pair) { // in turn: drift of clocks meets both alike
        resident.push_back(resident_run(bench, scene, homes, pack, passes).step_s);
        const Scene::Run run = streamed_run(bench, scene, homes, pack, depth, passes);
        copied = run.copied;
        streamed.push_back(run.step_s);
        ratios.push_back(streamed.back() / resident.back());
        figures = run.figures;
    }
    const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
    bench.report.add("streaming", {{"model", "Qwen3-32B, its layers"},
                                   {"layers", scene.config().layers},
                                   {"tokens", tokens},
                                   {"depth", depth},
                                   {"pairs", pairs},
                                   {"resident_step_s", median(resident)},
                                   {"streamed_step_s", median(streamed)},
                                   {"step_ratio", median(ratios)},
                                   {"least_ratio", *least},
                                   {"most_ratio", *most},
                                   {"exposed_share", // of the compute stream's time
                                    figures.exposed_s / (figures.exposed_s + figures.compute_s)},
                                   {"copy_gbytes_per_s",
                                    static_cast<double>(copied.count) / figures.gather_s * 1e-9},
                                   {"verdict", schedule::name_of(figures.verdict)},
                                   {"reason", figures.reason}});
}

} // namespace

void streaming(Bench& bench) {
    const std::vector<Elements> sizes =
        bench.options.tiny ? std::vector<Elements>{64} : std::vector<Elements>{4096, 8192, 16384};
    // A small vocabulary: embedding and head are two units of 66 in the whole model, and would be
    // two of eight here.
    const model::ModelConfig config = qwen3_32b(bench.options, 6, 8192);
    const shard::ArenaPlan plan(model::make_chain(config, {0}).units, 1);
    const base::Bytes slots =
        base::bytes_of((most_depth + 1) * plan.largest_unit, base::DType::bf16);
    if (Scene::bytes(config, sizes.back(), sizes.back()) + slots > bench.free_memory()) {
        bench.report.skip("the layers and their slots do not fit the GPU's memory");
        return;
    }
    Scene scene(bench, config, sizes.back(), sizes.back());
    Homes homes = make_homes(bench, scene);
    for (const Elements tokens : sizes) {
        for (int depth = 0; depth <= most_depth; ++depth) {
            if (!bench.report.time_for(std::to_string(tokens) + " tokens at depth " +
                                       std::to_string(depth))) {
                return;
            }
            measure(bench, scene, homes, tokens, depth);
        }
    }
}

} // namespace foregather::device_bench
