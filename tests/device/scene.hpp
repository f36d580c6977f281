// SPDX-License-Identifier: Apache-2.0
// A model of random weights and packs of random tokens, run through the program's own forward pass
// and sources of weights. Where weights lie and what is timed, its users decide.
#pragma once

#include <optional>

#include <foregather/model/chain.hpp>
#include <foregather/model/transformer.hpp>
#include <foregather/schedule/source.hpp>

#include "bench.hpp"

namespace foregather::device_bench {

// A pack of equal documents in device memory, and memory for its results.
class Pack {
public:
    Pack(Bench& bench, Elements tokens, Elements document, std::int64_t vocabulary);

    model::PackView view() const;
    Elements tokens() const { return ids_.n(); }
    Elements scored() const { return rows_.n(); }
    // Log-probabilities that are not finite numbers. Blocks.
    std::int64_t not_finite(Bench& bench) const;

private:
    struct Input {
        device::HostBuffer<std::int32_t> host;
        device::Buffer<std::int32_t> device;
        Elements n() const { return device.size(); }
    };
    static Input input(Bench& bench, const std::vector<std::int32_t>& values);

    Input ids_, positions_, offsets_, rows_, targets_;
    device::Buffer<float> logprob_;
    device::Buffer<std::uint8_t> greedy_;
};

class Scene {
public:
    // Activations for packs of up to so many tokens in documents of up to so many.
    Scene(Bench& bench, model::ModelConfig config, Elements tokens, Elements document);

    // What such a scene with weights on the device needs of it, nearly.
    static base::Bytes bytes(const model::ModelConfig& config, Elements tokens, Elements document);

    const model::ModelConfig& config() const { return config_; }
    const model::Chain& chain() const { return chain_; }
    const shard::ArenaPlan& plan() const { return plan_; }
    schedule::SourceOptions source_options(int depth, int passes) const;
    // Normal numbers, and ones for the weights of norms, into all units of an arena on the device.
    void fill_weights(base::Slab arena);

    struct Run {
        double step_s = 0;   // of a pass, the first not counted
        double layers_s = 0; // of its layers
        schedule::PrefetchFigures figures{};
        base::Bytes copied{}; // from host memory, by all passes; whoever made the source tells
    };
    // The pack as many times as the source was made for, at least twice. Blocks.
    Run run(schedule::TimedSource& source, const Pack& pack, kernels::Kernels& kernels, int passes);

private:
    Bench& bench_;
    model::ModelConfig config_;
    model::Chain chain_;
    shard::ArenaPlan plan_;
    std::optional<model::Transformer> transformer_;
};

} // namespace foregather::device_bench
