// SPDX-License-Identifier: Apache-2.0
// Weights in memory as a WeightSource, and a whole model with them: what transformer tests run.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <foregather/base/error.hpp>
#include <foregather/device/host_device.hpp>
#include <foregather/kernels/host_kernels.hpp>
#include <foregather/kernels/lanes.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/model/transformer.hpp>

namespace foregather::model {

using Tensors = std::map<std::string, std::vector<float>>; // by Hugging Face name

// Every tensor of the config, all entries `value`.
inline Tensors filled(const ModelConfig& config, float value) {
    Tensors tensors;
    for (const base::TensorSpec& spec : tensors_of(config)) {
        tensors[spec.name].assign(static_cast<std::size_t>(base::elements_of(spec.shape)), value);
    }
    return tensors;
}

// Every tensor of the config with numbers in [-scale, scale), the same for the same seed.
inline Tensors random_tensors(const ModelConfig& config, std::uint32_t seed, float scale) {
    Tensors tensors = filled(config, 0.0F);
    for (auto& [name, values] : tensors) {
        for (float& x : values) {
            seed = seed * 1664525U + 1013904223U;
            x = scale * (static_cast<float>(seed >> 8) / 8388608.0F - 1.0F);
        }
    }
    return tensors;
}

// One visit to a unit; without need of weights it is given none.
struct Visit {
    base::UnitId unit = 0;
    bool needs_weights = true;
};

// Units in memory, their gaps and a tail beyond their end NaN: whoever reads them shows it.
class MemoryWeights final : public shard::WeightSource {
public:
    // Visited in the chain's order, again and again.
    MemoryWeights(const Chain& chain, const Tensors& tensors)
        : MemoryWeights(chain, tensors, {}, base::DType::f32) {
        for (const base::UnitId unit : chain.unit_order()) {
            order_.push_back({unit});
        }
    }
    // In another order, of another type.
    MemoryWeights(const Chain& chain, const Tensors& tensors, std::vector<Visit> order,
                  base::DType type)
        : order_(std::move(order)), type_(type) {
        for (const shard::UnitSpec& unit : chain.units) {
            std::vector<float> memory(static_cast<std::size_t>(unit.elements + 256), std::nanf(""));
            for (const shard::TensorPart& part : unit.parts) {
                const auto& tensor = tensors.at(part.tensor);
                std::copy_n(tensor.begin() + part.first_row * part.row_elements(), part.elements(),
                            memory.begin() + part.offset);
            }
            if (type == base::DType::bf16) {
                bits_.emplace_back(memory.size());
                kernels::lanes(kernels::LaneLevel::sse2)
                    .to_bf16(memory.data(), bits_.back().data(), std::ssize(memory));
            }
            units_.push_back(std::move(memory));
        }
    }

    base::ConstSlab acquire(base::UnitId unit, device::Stream&) override {
        const Visit& visit = order_[next_ % order_.size()];
        if (held_ >= 0 || visit.unit != unit) {
            base::fail("unit " + std::to_string(unit) + " acquired out of turn");
        }
        held_ = unit;
        const auto at = static_cast<std::size_t>(unit);
        if (!visit.needs_weights) {
            return {};
        }
        if (type_ == base::DType::bf16) {
            return {reinterpret_cast<const std::byte*>(bits_[at].data()), std::ssize(bits_[at]),
                    type_};
        }
        return base::slab(base::View<const float>(units_[at]));
    }
    void release(base::UnitId unit, device::Stream&) override {
        if (held_ != unit) {
            base::fail("unit " + std::to_string(unit) + " released but not held");
        }
        held_ = -1;
        ++next_;
    }
    std::size_t uses() const { return next_; }
    base::UnitId held() const { return held_; } // -1: none

private:
    std::vector<Visit> order_;
    base::DType type_;
    std::vector<std::vector<float>> units_;
    std::vector<std::vector<std::uint16_t>> bits_;
    std::size_t next_ = 0;
    base::UnitId held_ = -1;
};

// A pack of documents in host memory, every token but a document's first scored.
struct Pack {
    std::vector<std::int32_t> ids, positions, offsets{0}, rows, targets;
    std::vector<float> logprob;
    std::vector<std::uint8_t> greedy;

    explicit Pack(const std::vector<std::vector<std::int32_t>>& documents) {
        for (const auto& document : documents) {
            for (std::size_t i = 0; i < document.size(); ++i) {
                if (i > 0) {
                    rows.push_back(static_cast<std::int32_t>(ids.size()) - 1);
                    targets.push_back(document[i]);
                }
                ids.push_back(document[i]);
                positions.push_back(static_cast<std::int32_t>(i));
            }
            offsets.push_back(static_cast<std::int32_t>(ids.size()));
        }
        logprob.assign(rows.size(), std::nanf(""));
        greedy.assign(rows.size(), 7);
    }
    PackView view() { return {ids, positions, offsets, rows, targets, {logprob, greedy}}; }
};

// A model on the host, ready to score.
struct TinyModel {
    TinyModel(const ModelConfig& config, const Tensors& tensors, base::Bytes piece_bytes = {0},
              int threads = 1, base::Elements max_tokens = 512)
        : chain(make_chain(config, piece_bytes)), device(device::make_host_device(threads)),
          stream(device->stream("compute", device::Priority::normal)),
          kernels(kernels::make_host_kernels(*device, threads, {})), weights(chain, tensors),
          transformer(config, chain, *device, {max_tokens, max_tokens}) {}

    void forward(Pack& pack) {
        transformer.forward(weights, pack.view(), *kernels, *stream);
        stream->sync();
    }
    std::vector<float> score(const std::vector<std::vector<std::int32_t>>& documents) {
        Pack pack(documents);
        forward(pack);
        return pack.logprob;
    }

    Chain chain;
    std::unique_ptr<device::Device> device;
    std::unique_ptr<device::Stream> stream;
    std::unique_ptr<kernels::Kernels> kernels;
    MemoryWeights weights;
    Transformer transformer;
};

} // namespace foregather::model
