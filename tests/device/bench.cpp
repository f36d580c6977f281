// SPDX-License-Identifier: Apache-2.0
// Rows, times, numbers and models: the bench's tools.
#include "bench.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <foregather/base/error.hpp>
#include <foregather/io/convert.hpp>

namespace foregather::device_bench {

Report::Report(const Options& options, bool first_rank)
    : options_(options), first_rank_(first_rank) {
    if (first_rank) {
        file_.open(options.out, std::ios::app);
        if (!file_) {
            base::refuse(options.out + ": cannot be written; name another file by --out");
        }
    }
}

void Report::write(Columns line) {
    if (first_rank_) {
        line["part"] = options_.part;
        line["emulated"] = options_.emulated;
        file_ << line.dump() << std::endl; // flushed: kept whatever comes
    }
}

void Report::add(const std::string& table, const Columns& row) {
    write({{"table", table}, {"row", row}});
}

bool Report::time_for(const std::string& what) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
    if (spent.count() < options_.budget_s) {
        return true;
    }
    if (!cut_) {
        write({{"cut", "the time of this part was over before " + what}});
        cut_ = true;
    }
    return false;
}

void Stopwatch::record(const device::OwnedEvent& event, device::Stream& stream) {
    device::check(cudaEventRecord(event.handle(), device::cuda_stream(stream)), "record a time");
}

double Stopwatch::seconds() const {
    float ms = 0;
    device::check(cudaEventSynchronize(begin_.handle()), "wait for a time");
    device::check(cudaEventSynchronize(end_.handle()), "wait for a time");
    device::check(cudaEventElapsedTime(&ms, begin_.handle(), end_.handle()), "read a time");
    return static_cast<double>(ms) * 1e-3;
}

double Bench::time(device::Stream& stream, double least_s, const std::function<void()>& enqueue) {
    Stopwatch watch(events);
    const auto calls = [&](int n) {
        watch.start(stream);
        for (int i = 0; i < n; ++i) {
            enqueue();
        }
        watch.stop(stream);
        return watch.seconds() / n;
    };
    calls(1);
    if (options.tiny) {
        return calls(1);
    }
    const double once = std::max(calls(1), 1e-6);
    return calls(std::clamp(static_cast<int>(std::ceil(least_s / once)), 2, 10'000));
}

base::Bytes Bench::free_memory() const {
    std::size_t free = 0, total = 0;
    device::check(cudaMemGetInfo(&free, &total), "ask how much memory is free");
    return {static_cast<std::int64_t>(free)};
}

Normals::Normals(device::Device& device, bool tiny)
    : device_(device), block_elements_(tiny ? 4096 : Elements{4} << 20) {}

const Normals::Block& Normals::block(base::DType type, double scale, double shift) {
    const auto key = std::tuple(type, scale, shift);
    if (const auto found = blocks_.find(key); found != blocks_.end()) {
        return found->second;
    }
    std::mt19937_64 random(20260801);
    std::normal_distribution<double> normal(shift, scale);
    std::vector<float> values(static_cast<std::size_t>(block_elements_));
    std::generate(values.begin(), values.end(),
                  [&] { return static_cast<float>(scale > 0 ? normal(random) : shift); });
    Block made(device_, base::bytes_of(block_elements_, type).count, "normal numbers");
    if (type == base::DType::f32) {
        std::memcpy(made.view().data(), values.data(), made.view().size());
    } else {
        io::f32_to_bf16(values.data(), block_elements_,
                        reinterpret_cast<std::uint16_t*>(made.view().data()));
    }
    return blocks_.emplace(key, std::move(made)).first->second;
}

namespace {

// Calls move(offset, bytes) for pieces of `size` bytes, none longer than a block.
template <class Move>
void in_pieces(base::Bytes size, std::size_t block_bytes, Move move) {
    const auto whole = static_cast<std::size_t>(size.count);
    for (std::size_t at = 0; at < whole; at += block_bytes) {
        move(at, std::min(block_bytes, whole - at));
    }
}

} // namespace

void Normals::fill(base::Slab to, double scale, device::Stream& stream) {
    const auto from = block(to.type, scale, 0).view();
    in_pieces(to.bytes(), from.size(), [&](std::size_t at, std::size_t n) {
        device_.copy_in(base::View<const std::byte>(from.first(n)),
                        base::View<std::byte>(to.data + at, n), stream);
    });
}

void Normals::ones(base::Slab to, device::Stream& stream) {
    const auto from = block(to.type, 0, 1).view();
    in_pieces(to.bytes(), from.size(), [&](std::size_t at, std::size_t n) {
        device_.copy_in(base::View<const std::byte>(from.first(n)),
                        base::View<std::byte>(to.data + at, n), stream);
    });
}

void Normals::fill_host(base::Slab to, double scale) {
    const auto from = block(to.type, scale, 0).view();
    in_pieces(to.bytes(), from.size(),
              [&](std::size_t at, std::size_t n) { std::memcpy(to.data + at, from.data(), n); });
}

namespace {

model::ModelConfig completed(model::ModelConfig config, const Options& options, int layers,
                             std::int64_t vocabulary) {
    config.layers = layers > 0 ? layers : config.layers;
    config.vocabulary = vocabulary > 0 ? vocabulary : config.vocabulary;
    if (options.tiny) {
        config.width = 64;
        config.ffn = 128;
        config.heads = 4;
        config.kv_heads = 2;
        config.head_dim = 32;
        config.vocabulary = 512;
    }
    config.windows.assign(static_cast<std::size_t>(config.layers), 0);
    return config;
}

} // namespace

model::ModelConfig qwen3_32b(const Options& options, int layers, std::int64_t vocabulary) {
    model::ModelConfig c;
    c.family = "qwen3";
    c.width = 5120;
    c.ffn = 25600;
    c.vocabulary = 151936;
    c.positions = 40960;
    c.layers = 64;
    c.heads = 64;
    c.kv_heads = 8;
    c.head_dim = 128;
    c.norm_epsilon = 1e-6F;
    c.qk_norm = true;
    c.rope.theta = 1e6;
    return completed(c, options, layers, vocabulary);
}

model::ModelConfig llama31_8b(const Options& options, int layers, std::int64_t vocabulary) {
    model::ModelConfig c;
    c.family = "llama";
    c.width = 4096;
    c.ffn = 14336;
    c.vocabulary = 128256;
    c.positions = 131072;
    c.layers = 32;
    c.heads = 32;
    c.kv_heads = 8;
    c.head_dim = 128;
    c.norm_epsilon = 1e-5F;
    c.rope = {.type = model::RopeType::llama3,
              .theta = 5e5,
              .factor = 8,
              .low_freq_factor = 1,
              .high_freq_factor = 4,
              .original_positions = 8192};
    return completed(c, options, layers, vocabulary);
}

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

} // namespace foregather::device_bench
