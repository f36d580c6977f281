// SPDX-License-Identifier: Apache-2.0
// A product alone, and beside copies: how much a gather that runs on few or many of the GPU's
// processors, or on none, slows the compute that hides it.
#include <algorithm>
#include <cmath>

#include "bench.hpp"
#include "paced_copy.hpp"

namespace foregather::device_bench {
namespace {

constexpr int most_copies = 2000; // enqueued beside one timing

struct Product {
    Array x, w, y;
    Elements tokens;
    int repeats = 1; // of a timing
    double alone_s = 0;
};

struct CopyKind {
    std::string name;
    int blocks;                // of threads; 0: by the driver's own means
    double rate_bytes_per_s;   // asked for; 0: none
    std::function<void()> one; // enqueues a copy
};

void multiply(Bench& bench, const Product& p) {
    bench.kernels->product(p.x.slab(), p.w.slab(), {}, kernels::Into::overwrite, p.y.floats(p.y.n),
                           p.tokens, *bench.compute);
}

Product make_product(Bench& bench) {
    const model::ModelConfig c = llama31_8b(bench.options, 1, 0);
    const Elements tokens = bench.options.tiny ? 256 : 8192;
    device::Device& device = *bench.device;
    Product p{{device, tokens * c.width, base::DType::bf16, "x"},
              {device, c.ffn * c.width, base::DType::bf16, "w"},
              {device, tokens * c.ffn, base::DType::f32, "y"},
              tokens};
    const kernels::ProductShape shape{tokens, c.width, c.ffn, base::DType::bf16};
    bench.kernels->prepare({&shape, 1});
    bench.normals->fill(p.x.slab(), 1, *bench.compute);
    bench.normals->fill(p.w.slab(), weight_scale, *bench.compute);
    const double once = bench.time(*bench.compute, 0.05, [&] { multiply(bench, p); });
    p.repeats = bench.options.tiny ? 2 : std::max(4, static_cast<int>(0.05 / once));
    return p;
}

// Enqueues p.repeats products between the watch's two events.
void timed_products(Bench& bench, const Product& p, Stopwatch& watch) {
    watch.start(*bench.compute);
    for (int i = 0; i < p.repeats; ++i) {
        multiply(bench, p);
    }
    watch.stop(*bench.compute);
}

// Products that begin when copies have begun, and copies to outlast them by half.
void measure(Bench& bench, const Product& p, const CopyKind& kind, double copy_bytes,
             device::Stream& copies) {
    const double copy_alone_s = bench.time(copies, 0.02, kind.one);
    const double products_s = p.alone_s * p.repeats;
    const int n =
        bench.options.tiny
            ? 3
            : std::clamp(static_cast<int>(1.5 * products_s / copy_alone_s) + 1, 2, most_copies);
    Stopwatch products(bench.events);
    std::vector<Stopwatch> ends; // from the begin of the first copy to the end of each
    const auto begun = bench.device->event();
    for (int i = 0; i < n; ++i) {
        ends.emplace_back(bench.events);
    }
    Stopwatch to_end(bench.events); // from the begin of the first copy to that of the products' end
    begun->record(copies);
    for (Stopwatch& end : ends) {
        end.start(copies);
    }
    to_end.start(copies);
    for (Stopwatch& end : ends) {
        kind.one();
        end.stop(copies);
    }
    bench.compute->wait(*begun);
    timed_products(bench, p, products);
    to_end.stop(*bench.compute);
    const double beside_s = products.seconds() / p.repeats;
    int inside = 0; // copies that ended before the products did
    double inside_s = 0;
    for (const Stopwatch& end : ends) {
        if (const double s = end.seconds(); s <= to_end.seconds()) {
            ++inside;
            inside_s = s;
        }
    }
    bench.report.add("contention", {{"copy", kind.name},
                                    {"blocks", kind.blocks},
                                    {"asked_gbytes_per_s", kind.rate_bytes_per_s * 1e-9},
                                    {"product_alone_s", p.alone_s},
                                    {"product_beside_s", beside_s},
                                    {"slowdown", beside_s / p.alone_s},
                                    {"copy_alone_gbytes_per_s", copy_bytes / copy_alone_s * 1e-9},
                                    {"copy_beside_gbytes_per_s",
                                     inside > 0 ? copy_bytes * inside / inside_s * 1e-9 : 0},
                                    {"copies_inside", inside},
                                    {"copies_outlast_products", inside < n}});
}

std::vector<CopyKind> kinds(Bench& bench, const Array& from, const Array& to,
                            const device::HostBuffer<std::byte>& host, device::Stream& copies) {
    const base::View<const std::byte> source = from.memory.view();
    std::vector<CopyKind> all;
    const std::vector<int> counts =
        bench.options.tiny ? std::vector<int>{1, 2} : std::vector<int>{1, 2, 4, 8, 16, 32};
    for (const double rate : {0.0, 50e9}) { // 50 GB/s: what one 400 Gb/s port brings
        for (const int blocks : counts) {
            all.push_back({rate > 0 ? "kernel, paced" : "kernel", blocks, rate, [&, blocks, rate] {
                               paced_copy(from.memory.view(), to.memory.view(), blocks, rate,
                                          copies);
                           }});
        }
    }
    all.push_back({"cudaMemcpyAsync device to device", 0, 0, [&bench, source, &to, &copies] {
                       bench.device->copy_in(source, to.memory.view(), copies);
                   }});
    all.push_back({"cudaMemcpyAsync host to device", 0, 0, [&bench, &host, &to, &copies] {
                       bench.device->copy_in(base::View<const std::byte>(host.view()),
                                             to.memory.view(), copies);
                   }});
    return all;
}

} // namespace

void contention(Bench& bench) {
    device::Device& device = *bench.device;
    const auto copies = device.stream("copies", device::Priority::high);
    const Elements bytes = bench.options.tiny ? 2 * paced_chunk : Elements{64} << 20;
    const Array from(device, bytes / 4, base::DType::f32, "what is copied");
    const Array to(device, bytes / 4, base::DType::f32, "its copy");
    const device::HostBuffer<std::byte> host(device, bytes, "what is copied up");
    bench.normals->fill_host({host.view().data(), bytes / 4, base::DType::f32}, 1);
    bench.normals->fill(from.slab(), 1, *bench.compute);
    Product p = make_product(bench);
    bench.compute->sync(); // before another stream reads what this one has filled
    Stopwatch watch(bench.events);
    timed_products(bench, p, watch);
    p.alone_s = watch.seconds() / p.repeats;
    for (const CopyKind& kind : kinds(bench, from, to, host, *copies)) {
        if (!bench.report.time_for(kind.name + " by " + std::to_string(kind.blocks) + " blocks")) {
            break;
        }
        measure(bench, p, kind, static_cast<double>(bytes), *copies);
        copies->sync();
    }
}

} // namespace foregather::device_bench
