// SPDX-License-Identifier: Apache-2.0
// The forward pass: a walk along the chain, acquire, compute, release at each use. It knows the
// maths' order and its activations, and nothing of ranks, gathers or events.
#pragma once

#include <vector>

#include <foregather/base/view.hpp>
#include <foregather/device/device.hpp>
#include <foregather/kernels/kernels.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/shard/weight_source.hpp>

namespace foregather::model {

// A pack of whole documents in device memory, and where its results go. All of it must live until
// the pass is done on the compute stream.
struct PackView {
    kernels::Ids ids;             // [T]
    kernels::Ids positions;       // [T], from 0 in each document
    kernels::Ids offsets;         // [documents + 1] into T
    kernels::Ids rows;            // [S] token positions whose prediction is asked for
    kernels::Ids targets;         // [S] ids of the tokens after them, -1 where none is scored
    kernels::HeadResults results; // [S] out; what Limits::head asks for
    base::View<float> logits{};   // [S, V] out, before temperature
    base::View<float> hidden{};   // [S, C] out, after the final norm
};

struct LayerArrays; // src/model/layer.hpp

// What the head is asked for beside the log-probability of each target.
struct HeadWants {
    double temperature = 1.0;
    bool entropy = false;
    int top_k = 0;
    bool logits = false;
    bool hidden = false;
};

// What the activations are laid out for.
struct Limits {
    base::Elements tokens = 0;   // T, of the largest pack
    base::Elements document = 0; // longest one, or window: positions of the RoPE tables
    // Type of the gathered weights: fp32 or bf16. What they are multiplied with is rounded to it;
    // sums, the residual stream, norms and the softmax stay fp32 or better.
    base::DType weights = base::DType::f32;
    HeadWants head{};
    base::Elements row_multiple = 1; // Kernels::row_multiple()
};

// Every product of a pass of up to limits.tokens tokens, each shape once: what Kernels::prepare()
// is told. Pieces of the head are among them, as products with as many rows as tokens are scored.
std::vector<kernels::ProductShape> products_of(const ModelConfig& config, const Chain& chain,
                                               const Limits& limits);

class Transformer {
public:
    // Allocates all activations, and RoPE tables. Blocks for the tables. What products read and
    // write has rows up to the next limits.row_multiple.
    Transformer(ModelConfig config, Chain chain, device::Device& device, const Limits& limits);

    // Enqueues one forward pass of a pack; does not block. A pack without tokens computes nothing
    // but acquires and releases every unit, so that all ranks gather alike; one without scored rows
    // skips the head alike. Throws Error(failed) for a pack larger than limits.tokens or with
    // uneven arrays.
    void forward(shard::WeightSource& weights, const PackView& pack, kernels::Kernels& kernels,
                 device::Stream& compute);

    std::vector<kernels::ProductShape> products() const {
        return products_of(config_, chain_, limits_);
    }
    // What logits are multiplied by before the softmax: 1 / temperature.
    float logits_scale() const { return static_cast<float>(1.0 / limits_.head.temperature); }

    // Device memory that the constructor allocates, to the byte.
    static base::Bytes activation_bytes(const ModelConfig& config, const Limits& limits);

private:
    void check(const PackView& pack) const;
    kernels::HeadState head_state(const PackView& pack) const;
    void embedding(const shard::UnitSpec& unit, base::ConstSlab weights, const PackView& pack,
                   kernels::Kernels& kernels, device::Stream& compute);
    void layer(const shard::UnitSpec& unit, base::ConstSlab weights, int index,
               const PackView& pack, kernels::Kernels& kernels, device::Stream& compute);
    LayerArrays arrays(base::Elements tokens) const;
    base::Slab operand(const device::Buffer<std::byte>& buffer, base::Elements n) const;
    void head(const shard::UnitSpec& unit, base::ConstSlab weights, const PackView& pack,
              kernels::Kernels& kernels, device::Stream& compute);

    ModelConfig config_;
    Chain chain_;
    Limits limits_;
    device::Buffer<float> residual_, query_, key_, value_, gate_, up_, taken_;
    device::Buffer<std::byte> normed_, mixed_, gated_, scored_; // of limits.weights' type
    device::Buffer<float> cosines_, sines_;
    device::Buffer<float> head_maximum_, head_target_;
    device::Buffer<double> head_sum_, head_weighted_;
    device::Buffer<std::int32_t> head_best_;
    device::Buffer<kernels::TopToken> head_top_;
};

} // namespace foregather::model
