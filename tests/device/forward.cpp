// SPDX-License-Identifier: Apache-2.0
// The forward pass of a few layers with resident weights, as a whole and by families of kernels, in
// one long document and in many short ones.
#include <algorithm>

#include "family_kernels.hpp"
#include "scene.hpp"

namespace foregather::device_bench {
namespace {

constexpr int most_layers = 4;
constexpr base::Bytes kept_free{std::int64_t{2} << 30};

// As many layers as fit, or none.
int layers_that_fit(const Bench& bench, Elements tokens,
                    model::ModelConfig (*make)(const Options&, int, std::int64_t)) {
    for (int layers = most_layers; layers > 0; --layers) {
        const model::ModelConfig config = make(bench.options, layers, 0);
        const base::Bytes spare = bench.options.tiny ? base::Bytes{} : kept_free;
        if (Scene::bytes(config, tokens, tokens) + spare <= bench.free_memory()) {
            return layers;
        }
    }
    return 0;
}

schedule::InPlaceSource resident(Scene& scene, const Array& arena, Bench& bench, int passes) {
    return {scene.source_options(0, passes), scene.plan(), arena.slab(), *bench.device, {}};
}

std::map<std::string, Family> families_of(Bench& bench, Scene& scene, const Array& arena,
                                          const Pack& pack, Elements document) {
    constexpr int passes = 2;
    FamilyKernels timed(bench, document);
    auto source = resident(scene, arena, bench, passes);
    scene.run(source, pack, timed, passes);
    auto families = timed.collect();
    for (auto& [name, family] : families) { // of one pass
        family.calls /= passes;
        family.seconds /= passes;
        family.flops /= passes;
        family.bytes /= passes;
    }
    return families;
}

void measure(Bench& bench, const char* model, Scene& scene, const Array& arena, Elements tokens,
             Elements document) {
    const int passes = bench.options.tiny ? 2 : 6;
    const Pack pack(bench, tokens, document, scene.config().vocabulary);
    auto source = resident(scene, arena, bench, passes);
    const Scene::Run run = scene.run(source, pack, *bench.kernels, passes);
    const auto families = families_of(bench, scene, arena, pack, document);
    double flops = 0, seconds = 0; // of layers; of all calls
    for (const auto& [name, family] : families) {
        flops += name == "head" ? 0 : family.flops;
        seconds += family.seconds;
    }
    bench.report.add("forward", {{"model", model},
                                 {"layers", scene.config().layers},
                                 {"tokens", tokens},
                                 {"document_tokens", document},
                                 {"pass_s", run.step_s},
                                 {"layers_s", run.layers_s},
                                 {"layers_tflops", flops / run.layers_s * 1e-12},
                                 {"pass_with_events_s", seconds},
                                 {"logprobs_not_finite", pack.not_finite(bench)}});
    for (const auto& [name, family] : families) {
        bench.report.add("forward_families",
                         {{"model", model},
                          {"document_tokens", document},
                          {"family", name},
                          {"calls", family.calls},
                          {"pass_s", family.seconds},
                          {"share_of_pass", family.seconds / seconds},
                          {"tflops", family.flops / family.seconds * 1e-12},
                          {"gbytes_per_s", family.bytes / family.seconds * 1e-9}});
    }
}

void one_model(Bench& bench, const char* model,
               model::ModelConfig (*make)(const Options&, int, std::int64_t)) {
    const Elements tokens = bench.options.tiny ? 128 : 8192;
    const int layers = layers_that_fit(bench, tokens, make);
    if (layers == 0) {
        bench.report.skip(std::string("one layer of ") + model + " does not fit the GPU's memory");
        return;
    }
    Scene scene(bench, make(bench.options, layers, 0), tokens, tokens);
    const Array arena(*bench.device, scene.plan().whole_elements, base::DType::bf16, "weights");
    scene.fill_weights(arena.slab());
    for (const Elements document : {tokens, bench.options.tiny ? tokens / 4 : Elements{512}}) {
        if (!bench.report.time_for(std::string(model) + " in documents of " +
                                   std::to_string(document))) {
            return;
        }
        measure(bench, model, scene, arena, tokens, document);
    }
}

} // namespace

void forward(Bench& bench) {
    one_model(bench, "Qwen3-32B", qwen3_32b);
    one_model(bench, "Llama-3.1-8B", llama31_8b);
}

} // namespace foregather::device_bench
