// SPDX-License-Identifier: Apache-2.0
// The products of a layer, as the program makes them, against the fastest of cuBLASLt's answers:
// what choosing by the clock would win. Each model's shapes, at several numbers of tokens.
#include <algorithm>

#include "bench.hpp"
#include "lt_answers.hpp"

namespace foregather::device_bench {
namespace {

constexpr int most_answers = 8;
constexpr double least_s = 0.02; // of one timing

struct Product {
    const char* name;
    Elements in, out;
    kernels::Into into;
};

std::vector<Product> products_of_layer(const model::ModelConfig& c) {
    const Elements query = Elements{c.heads} * c.head_dim, key = Elements{c.kv_heads} * c.head_dim;
    constexpr auto set = kernels::Into::overwrite, add = kernels::Into::add;
    return {{"gate, up", c.width, c.ffn, set},
            {"down", c.ffn, c.width, add},
            {"q", c.width, query, set},
            {"k, v", c.width, key, set},
            {"o", query, c.width, add}};
}

struct Place { // operands of the largest product, and memory for it
    Array x, w, y, workspace;
};

// Times one product in both ways, and adds its row.
void measure(Bench& bench, const char* model, const Product& p, Elements tokens, base::DType type,
             const Place& place) {
    const base::Slab x{place.x.slab().data, tokens * p.in, type};
    const base::Slab w{place.w.slab().data, p.out * p.in, type};
    const auto y = place.y.floats(tokens * p.out);
    bench.normals->fill(x, 1, *bench.compute);
    bench.normals->fill(w, weight_scale, *bench.compute);
    bench.normals->fill(base::slab(y), 1, *bench.compute); // what is added to
    const double ours_s = bench.time(*bench.compute, least_s, [&] {
        bench.kernels->product(x, w, {}, p.into, y, tokens, *bench.compute);
    });
    const LtAnswers answers({tokens, p.in, p.out, p.out, type, false, p.into == kernels::Into::add},
                            place.workspace.memory.view(), most_answers);
    std::vector<double> times;
    for (int i = 0; i < answers.count(); ++i) {
        times.push_back(bench.time(*bench.compute, least_s, [&] {
            answers.multiply(i, {x.data, w.data, nullptr, y.data()}, *bench.compute);
        }));
    }
    if (times.empty()) {
        bench.report.skip(std::string("cuBLASLt has no answer to ") + p.name + " of " + model);
        return;
    }
    const auto best = std::min_element(times.begin(), times.end());
    const double tflop = 2e-12 * static_cast<double>(tokens) * static_cast<double>(p.in) *
                         static_cast<double>(p.out);
    bench.report.add("products", {{"model", model},
                                  {"product", p.name},
                                  {"tokens", tokens},
                                  {"in", p.in},
                                  {"out", p.out},
                                  {"dtype", base::name_of(type)},
                                  {"ours_s", ours_s},
                                  {"first_answer_s", times.front()},
                                  {"best_answer_s", *best},
                                  {"best_answer", best - times.begin()},
                                  {"answers", answers.count()},
                                  {"ours_over_best", ours_s / *best},
                                  {"ours_tflops", tflop / ours_s},
                                  {"best_tflops", tflop / *best}});
}

} // namespace

void products(Bench& bench) {
    const std::vector<Elements> sizes =
        bench.options.tiny ? std::vector<Elements>{256} : std::vector<Elements>{8192, 2048, 256};
    const std::vector<std::pair<const char*, model::ModelConfig>> models = {
        {"Qwen3-32B", qwen3_32b(bench.options, 1, 0)},
        {"Llama-3.1-8B", llama31_8b(bench.options, 1, 0)}};
    std::vector<kernels::ProductShape> shapes;
    Elements x = 0, w = 0, y = 0;
    for (const auto& [name, config] : models) {
        for (const Product& p : products_of_layer(config)) {
            x = std::max(x, sizes.front() * p.in);
            w = std::max(w, p.in * p.out);
            y = std::max(y, sizes.front() * p.out);
            for (const base::DType type : {base::DType::bf16, base::DType::f32}) {
                shapes.push_back({sizes.front(), p.in, p.out, type, false, p.into});
            }
        }
    }
    bench.kernels->prepare(shapes);
    device::Device& device = *bench.device;
    const Place place{{device, x, base::DType::f32, "x"},
                      {device, w, base::DType::f32, "w"},
                      {device, y, base::DType::f32, "y"},
                      {device, kernels::lt_workspace.count / 4, base::DType::f32, "workspace"}};
    for (const base::DType type : {base::DType::bf16, base::DType::f32}) {
        for (const Elements tokens : sizes) {
            for (const auto& [name, config] : models) {
                for (const Product& p : products_of_layer(config)) {
                    if (!bench.report.time_for(std::string(p.name) + " of " + name + " at " +
                                               std::to_string(tokens) + " tokens, " +
                                               base::name_of(type))) {
                        return;
                    }
                    measure(bench, name, p, tokens, type, place);
                }
            }
        }
    }
}

} // namespace foregather::device_bench
