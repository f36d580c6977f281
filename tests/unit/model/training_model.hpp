// SPDX-License-Identifier: Apache-2.0
// Gradients in memory as a GradientSink, and a whole model that makes them: what tests of training
// run.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <foregather/model/training.hpp>

#include "memory_weights.hpp"

namespace foregather::model {

// A gradient of its own for each use, NaN until it is written.
class MemoryGradients final : public shard::GradientSink {
public:
    MemoryGradients(const Chain& chain, const MemoryWeights& weights, base::Elements spare = 256)
        : chain_(chain), weights_(weights), spare_(spare) {}

    base::View<float> begin(base::UnitId unit, device::Stream&) override {
        if (begun_ >= 0 || weights_.held() != unit) {
            base::fail("gradient of unit " + std::to_string(unit) + " begun out of turn");
        }
        begun_ = unit;
        const auto n = spec(unit).elements + spare_;
        uses_.push_back({unit, std::vector<float>(static_cast<std::size_t>(n), std::nanf(""))});
        return uses_.back().memory;
    }
    void end(base::UnitId unit, device::Stream&) override {
        if (begun_ != unit || weights_.held() != unit) {
            base::fail("gradient of unit " + std::to_string(unit) + " ended out of turn");
        }
        begun_ = -1;
    }

    // Sums of all uses so far, by tensor, in their order; the work must be done.
    Tensors sums(const ModelConfig& config) const {
        Tensors sums = filled(config, 0.0F);
        for (const Use& use : uses_) {
            for (const shard::TensorPart& part : spec(use.unit).parts) {
                float* to = sums.at(part.tensor).data() + part.first_row * part.row_elements();
                for (base::Elements i = 0; i < part.elements(); ++i) {
                    to[i] += use.memory[static_cast<std::size_t>(part.offset + i)];
                }
            }
        }
        return sums;
    }
    // Entries that are no parameter's, and those of them that are not 0.
    struct Padding {
        base::Elements entries = 0, wrong = 0;
    };
    Padding padding() const {
        Padding padding;
        for (const Use& use : uses_) {
            std::vector<bool> owned(use.memory.size());
            for (const shard::TensorPart& part : spec(use.unit).parts) {
                std::fill_n(owned.begin() + part.offset, part.elements(), true);
            }
            for (std::size_t i = 0; i < owned.size(); ++i) {
                padding.entries += owned[i] ? 0 : 1;
                padding.wrong += owned[i] || use.memory[i] == 0.0F ? 0 : 1;
            }
        }
        return padding;
    }
    std::size_t uses() const { return uses_.size(); }
    void forget() { uses_.clear(); }

private:
    struct Use {
        base::UnitId unit;
        std::vector<float> memory;
    };
    const shard::UnitSpec& spec(base::UnitId unit) const {
        return chain_.units[static_cast<std::size_t>(unit)];
    }

    const Chain& chain_;
    const MemoryWeights& weights_;
    base::Elements spare_;
    std::deque<Use> uses_; // their memory stays where it is
    base::UnitId begun_ = -1;
};

inline std::vector<Visit> visits_of(const Chain& chain) {
    std::vector<Visit> visits;
    for (const TrainingUse& use : training_uses(chain)) {
        visits.push_back({use.unit, use.needs_weights});
    }
    return visits;
}

struct TrainingOptions {
    Recompute recompute = Recompute::layer;
    base::Bytes piece_bytes{0};
    base::DType type = base::DType::f32;
    int threads = 1;
    base::Elements tokens = 512;
};

using Documents = std::vector<std::vector<std::int32_t>>;

// A model on the host, ready to train.
struct TrainingModel {
    TrainingModel(const ModelConfig& c, const Tensors& tensors, const TrainingOptions& options = {})
        : config(c), chain(make_chain(config, options.piece_bytes)),
          device(device::make_host_device(options.threads)),
          stream(device->stream("compute", device::Priority::normal)),
          kernels(kernels::make_host_kernels(*device, options.threads, {})),
          weights(chain, tensors, visits_of(chain), options.type), gradients(chain, weights),
          transformer(config, chain, *device,
                      {options.tokens, options.tokens, options.type, 1, options.recompute}) {}

    static TrainingPack view(Pack& pack, double& loss) {
        return {pack.ids, pack.positions, pack.offsets, pack.rows, pack.targets, {&loss, 1}};
    }

    struct Outcome {
        double loss = std::nan("");
        Tensors gradients;
    };
    Outcome pass(Pack pack, float scale) {
        Outcome outcome;
        gradients.forget();
        transformer.pass(weights, gradients, view(pack, outcome.loss), scale, *kernels, *stream);
        stream->sync();
        outcome.gradients = gradients.sums(config);
        return outcome;
    }
    Outcome pass(const Documents& documents, float scale) { return pass(Pack(documents), scale); }

    ModelConfig config;
    Chain chain;
    std::unique_ptr<device::Device> device;
    std::unique_ptr<device::Stream> stream;
    std::unique_ptr<kernels::Kernels> kernels;
    MemoryWeights weights;
    MemoryGradients gradients;
    TrainableTransformer transformer;
};

// The tensors whose largest error is above `limit` of their largest expected entry, with it.
inline std::string far_from(const Tensors& got, const Tensors& expected, double limit) {
    std::string text = got.size() == expected.size() ? "" : "other tensors; ";
    for (const auto& [name, wanted] : expected) {
        const std::vector<float>& found = got.at(name);
        double worst = found.size() == wanted.size() ? 0 : HUGE_VAL, largest = 1e-30;
        for (std::size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
            const double error = std::abs(static_cast<double>(found[i]) - wanted[i]);
            worst = error <= worst ? worst : (std::isnan(error) ? HUGE_VAL : error);
            largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
        }
        if (worst > limit * largest) {
            text += name + ": " + std::to_string(worst / largest / limit) + " of what is allowed; ";
        }
    }
    return text;
}

} // namespace foregather::model
