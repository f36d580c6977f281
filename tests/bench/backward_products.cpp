// SPDX-License-Identifier: Apache-2.0
// How fast the products of training are beside the product library alone on the same shapes: those
// of SmolLM2-135M's layers at 256 tokens, and its head. One thread; the best of several tries, both
// in turn. A program, not a test: it judges nothing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include <foregather/device/host_device.hpp>
#include <foregather/kernels/host_kernels.hpp>
#include <foregather/kernels/training.hpp>

#include "../../src/kernels/host/products.hpp"

using namespace foregather;
using base::ConstSlab;
using base::Elements;
using kernels::Into;
using kernels::Matrix;

namespace {

constexpr Elements tokens = 256;
constexpr int tries = 15;

struct Bench {
    std::unique_ptr<device::Device> device = device::make_host_device(1);
    std::unique_ptr<device::Stream> compute = device->stream("compute", device::Priority::normal);
    kernels::ProductChoice choice;
    std::unique_ptr<kernels::Kernels> kernels;
    std::unique_ptr<kernels::Products> library;
    double worst = 1e9;

    explicit Bench(const kernels::ProductChoice& chosen)
        : choice(chosen), kernels(kernels::make_host_kernels(*device, 1, chosen)),
          library(kernels::make_products(chosen)) {}

    // Seconds of both, the best of several tries in turn.
    void compare(const char* what, double flop, const std::function<void()>& ours,
                 const std::function<void()>& alone) {
        double a = 1e9;
        double b = 1e9;
        const auto seconds = [](const std::function<void()>& work) {
            const auto begin = std::chrono::steady_clock::now();
            work();
            return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        };
        for (int i = 0; i < tries; ++i) {
            a = std::min(a, seconds([&] {
                             ours();
                             compute->sync();
                         }));
            b = std::min(b, seconds(alone));
        }
        worst = std::min(worst, b / a);
        std::printf("%-34s%8.1f%8.1f%8.2f\n", what, flop * 1e-9 / a, flop * 1e-9 / b, b / a);
    }
};

void layer(Bench& bench, const char* name, Elements in, Elements out) {
    const auto n = [](Elements a, Elements b) { return static_cast<std::size_t>(a * b); };
    const std::vector<float> x(n(tokens, in), 0.5F), w(n(out, in), 0.25F), dy(n(tokens, out), 0.1F);
    std::vector<float> dx(n(tokens, in)), dw(n(out, in));
    kernels::TrainingKernels& training = bench.kernels->training();
    const double flop = 2.0 * static_cast<double>(tokens * in * out);
    bench.compare(
        (std::string(name) + ", its input's gradient").c_str(), flop,
        [&] {
            training.product_input_gradient(base::View<const float>(dy), base::View<const float>(w),
                                            Into::overwrite, dx, tokens, *bench.compute);
        },
        [&] {
            bench.library->multiply({tokens, in, out}, Matrix<const float>{dy.data(), out},
                                    Matrix<const float>{w.data(), in}, 0, {dx.data(), in});
        });
    bench.compare((std::string(name) + ", its weights' gradient").c_str(), flop,
                  [&] {
                      training.product_weight_gradient(base::View<const float>(dy),
                                                       base::View<const float>(x), Into::overwrite,
                                                       dw, {}, tokens, *bench.compute);
                  },
                  [&] {
                      bench.library->multiply_outer(
                          {out, in, tokens}, Matrix<const float>{dy.data(), out},
                          Matrix<const float>{x.data(), in}, 0, {dw.data(), in});
                  });
}

} // namespace

int main() {
    const std::string level = kernels::supported_core_level();
    const kernels::FastestProducts fastest = kernels::fastest_products(level);
    Bench bench({fastest.can_be_loaded ? fastest.library : "openblas", level});
    std::printf("products of backward by %s, %lld tokens, one thread, fp32\n%-34s%8s%8s%8s\n",
                bench.library->name().c_str(), static_cast<long long>(tokens), "GFLOP/s", "here",
                "alone", "ratio");
    layer(bench, "576 -> 576", 576, 576);
    layer(bench, "576 -> 192", 576, 192);
    layer(bench, "576 -> 1536", 576, 1536);
    layer(bench, "1536 -> 576", 1536, 576);
    std::printf("least ratio %.2f\n", bench.worst);
    return 0;
}
