// SPDX-License-Identifier: Apache-2.0
// The memory of a training pass and its walk along the uses. What a layer computes is decided in
// layer.cpp and layer_backward.cpp.
#include <foregather/model/training.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include <foregather/base/error.hpp>
#include <foregather/kernels/training.hpp>

#include "layer.hpp"
#include "names.hpp"

namespace foregather::model {
namespace {

using kernels::Into;

Sizes sizes_of(const ModelConfig& config, const TrainingLimits& limits) {
    return {config, limits.tokens, limits.document, limits.row_multiple};
}

// Elements of an operand that is only there to be rounded to.
base::Elements rounded(base::Elements n, const TrainingLimits& limits) {
    return limits.weights == base::DType::f32 ? 0 : n;
}

// Sets of arrays of layers.
std::int64_t sets_of(const ModelConfig& config, const TrainingLimits& limits) {
    return limits.recompute == Recompute::layer ? 1 : config.layers;
}

} // namespace

std::vector<TrainingUse> training_uses(const Chain& chain) {
    std::vector<TrainingUse> uses;
    for (const ChainUse& use : chain.uses) {
        uses.push_back({use.unit, use.role, use.index, false, true});
    }
    for (std::size_t u = chain.uses.size(); u-- > 0;) {
        const ChainUse& use = chain.uses[u];
        uses.push_back({use.unit, use.role, use.index, true, use.role != Role::embedding});
    }
    return uses;
}

TrainableTransformer::TrainableTransformer(ModelConfig config, Chain chain, device::Device& device,
                                           const TrainingLimits& limits)
    : config_(std::move(config)), chain_(std::move(chain)), uses_(training_uses(chain_)),
      limits_(limits) {
    const Sizes n = sizes_of(config_, limits);
    const auto operands = [&](base::Elements count, const char* purpose) {
        return device::Buffer<std::byte>(device, base::bytes_of(count, limits.weights).count,
                                         purpose);
    };
    for (int layer = 0; layer < config_.layers; ++layer) {
        inputs_.push_back({device, n.stream, "inputs of layers"});
    }
    for (std::int64_t set = 0; set < sets_of(config_, limits); ++set) {
        layers_.push_back(layer_memory(device));
    }
    taken_ = {device, n.taken, "rows taken for the head"};
    scored_ = operands(n.stream, "scored rows");
    stream_gradient_ = {device, n.stream, "the residual stream's gradient"};
    normed_gradient_ = {device, n.stream, "normed activations' gradient"};
    gated_gradient_ = {device, n.ffn, "gated activations' gradient"};
    mixed_gradient_ = {device, n.query, "gradient of attention's output"};
    query_gradient_ = {device, n.query, "queries' gradient"};
    key_gradient_ = {device, n.key, "keys' gradient"};
    value_gradient_ = {device, n.key, "values' gradient"};
    stream_operand_ = operands(rounded(n.stream, limits), "the rounded residual gradient");
    up_operand_ = operands(rounded(n.ffn, limits), "rounded gradient of up projections");
    key_operand_ = operands(rounded(n.key, limits), "rounded gradient of keys");
    value_operand_ = operands(rounded(n.key, limits), "rounded gradient of values");
    cosines_ = {device, n.table, "RoPE cosines"};
    sines_ = {device, n.table, "RoPE sines"};
    head_maximum_ = {device, n.tokens, "largest logits"};
    head_target_ = {device, n.tokens, "target logits"};
    head_sum_ = {device, n.tokens, "sums of exponentials"};
    head_best_ = {device, n.tokens, "most likely tokens"};
    upload_rope_tables(config_, limits.document, device, cosines_, sines_);
}

TrainableTransformer::LayerMemory TrainableTransformer::layer_memory(device::Device& device) const {
    const Sizes n = sizes_of(config_, limits_);
    const auto operands = [&](base::Elements count, const char* purpose) {
        return device::Buffer<std::byte>(device, base::bytes_of(count, limits_.weights).count,
                                         purpose);
    };
    LayerMemory memory;
    memory.middle = {device, n.stream, "the residual stream after attention"};
    memory.plain_query = {device, config_.qk_norm ? n.query : 0, "queries before their norm"};
    memory.plain_key = {device, config_.qk_norm ? n.key : 0, "keys before their norm"};
    memory.query = {device, n.query, "queries"};
    memory.key = {device, n.key, "keys"};
    memory.value = {device, n.key, "values"};
    memory.lse = {device, n.tokens * config_.heads, "attention's sums of exponentials"};
    memory.gate = {device, n.ffn, "gates"};
    memory.up = {device, n.ffn, "up projections"};
    memory.normed = operands(n.stream, "normed activations");
    memory.normed_middle = operands(n.stream, "normed activations after attention");
    memory.mixed = operands(n.query, "attention's output");
    memory.gated = operands(n.ffn, "gated activations");
    return memory;
}

base::Bytes TrainableTransformer::activation_bytes(const ModelConfig& config,
                                                   const TrainingLimits& limits) {
    const Sizes n = sizes_of(config, limits);
    const base::Elements plain = config.qk_norm ? n.query + n.key : 0;
    const base::Elements layer_floats =
        n.stream + plain + n.query + 2 * n.key + n.tokens * config.heads + 2 * n.ffn;
    const base::Elements layer_operands = 2 * n.stream + n.query + n.ffn;
    const std::int64_t sets = sets_of(config, limits);
    const base::Elements floats = config.layers * n.stream + sets * layer_floats + n.taken +
                                  2 * n.stream + n.ffn + 2 * n.query + 2 * n.key + 2 * n.table +
                                  2 * n.tokens;
    const base::Elements operands =
        sets * layer_operands + n.stream + rounded(n.stream + n.ffn + 2 * n.key, limits);
    return base::bytes_of(floats, base::DType::f32) + base::bytes_of(operands, limits.weights) +
           base::Bytes{n.tokens *
                       static_cast<base::Elements>(sizeof(double) + sizeof(std::int32_t))};
}

void TrainableTransformer::check(const TrainingPack& pack) const {
    const base::Elements tokens = count(pack.ids), scored = count(pack.rows);
    if (tokens > limits_.tokens || count(pack.positions) != tokens || pack.offsets.empty() ||
        scored > tokens || count(pack.targets) != scored || pack.loss.size() != 1) {
        base::fail("a pack of " + std::to_string(tokens) + " ids, " +
                   std::to_string(count(pack.positions)) + " positions, " +
                   std::to_string(count(pack.offsets)) + " offsets, " + std::to_string(scored) +
                   " scored rows, " + std::to_string(count(pack.targets)) + " targets and " +
                   std::to_string(pack.loss.size()) + " losses does not fit training with " +
                   std::to_string(limits_.tokens) + " tokens");
    }
}

void TrainableTransformer::pass(shard::WeightSource& weights, shard::GradientSink& gradients,
                                const TrainingPack& pack, float scale, kernels::Kernels& kernels,
                                device::Stream& compute) {
    check(pack);
    const Walk walk{weights, pack, kernels, compute};
    forward(walk);
    backward(walk, gradients, scale);
}

void TrainableTransformer::evaluate(shard::WeightSource& weights, const TrainingPack& pack,
                                    kernels::Kernels& kernels, device::Stream& compute) {
    check(pack);
    forward({weights, pack, kernels, compute});
}

void TrainableTransformer::forward(const Walk& walk) {
    const kernels::HeadState state = head_state(walk.scored());
    walk.kernels.head_begin(state, walk.compute);
    for (const ChainUse& use : chain_.uses) {
        const base::ConstSlab there = walk.weights.acquire(use.unit, walk.compute);
        const shard::TensorPart& first =
            chain_.units[static_cast<std::size_t>(use.unit)].parts.front();
        switch (use.role) {
        case Role::embedding:
            walk.kernels.embed(walk.pack.ids, first.first_row, shard::part_of(there, first),
                               inputs_.front().first(walk.tokens() * config_.width), config_.width,
                               walk.compute);
            break;
        case Role::layer:
            layer_forward(walk, use, there);
            break;
        case Role::head:
            walk.kernels.head_piece(operand(scored_, walk.scored() * config_.width),
                                    shard::part_of(there, first), first.first_row,
                                    walk.pack.targets, state, walk.compute);
            break;
        }
        walk.weights.release(use.unit, walk.compute);
    }
    walk.kernels.training().loss(state, walk.pack.targets, Into::overwrite, walk.pack.loss,
                                 walk.compute);
}

void TrainableTransformer::layer_forward(const Walk& walk, const ChainUse& use,
                                         base::ConstSlab weights) {
    const LayerCall call = call_of(walk, use.unit, use.index, weights);
    const LayerArrays arrays = arrays_of(use.index, walk.tokens());
    attention_forward(call, arrays);
    gates_forward(call, arrays);
    down_forward(call, arrays);
    if (use.index + 1 == config_.layers) {
        const base::Elements n = walk.scored() * config_.width;
        walk.kernels.take_rows(arrays.output, walk.pack.rows, taken_.first(n), config_.width,
                               walk.compute);
        walk.kernels.rms_norm(taken_.first(n), find(call.unit, weights, final_norm_name),
                              config_.norm_epsilon, operand(scored_, n), walk.compute);
    }
}

void TrainableTransformer::backward(const Walk& walk, shard::GradientSink& gradients, float scale) {
    for (const TrainingUse& use : uses_) {
        if (!use.backward) {
            continue;
        }
        const base::ConstSlab there = walk.weights.acquire(use.unit, walk.compute);
        const base::View<float> gradient = gradients.begin(use.unit, walk.compute);
        const shard::UnitSpec& unit = chain_.units[static_cast<std::size_t>(use.unit)];
        if (std::ssize(gradient) < unit.elements) {
            base::fail("the gradient of " + unit.name + " was given room for " +
                       std::to_string(gradient.size()) + " elements, it has " +
                       std::to_string(unit.elements));
        }
        switch (use.role) {
        case Role::head:
            head_backward(walk, use, there, gradient, scale);
            break;
        case Role::layer:
            layer_backward(walk, use, there, gradient);
            break;
        case Role::embedding:
            embedding_backward(walk, use, gradient);
            break;
        }
        UnitGradient{unit, gradient}.clear_padding(walk.kernels.training(), walk.compute);
        gradients.end(use.unit, walk.compute);
        walk.weights.release(use.unit, walk.compute);
    }
}

} // namespace foregather::model
