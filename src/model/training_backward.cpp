// SPDX-License-Identifier: Apache-2.0
// Backward of each kind of use, and where a layer's arrays lie. The order of uses is decided in
// training.cpp, what a layer computes in layer.cpp and layer_backward.cpp.
#include <foregather/model/training.hpp>

#include <foregather/kernels/training.hpp>

#include "layer.hpp"
#include "names.hpp"

namespace foregather::model {

using kernels::Into;

void TrainableTransformer::head_backward(const Walk& walk, const TrainingUse& use,
                                         base::ConstSlab weights, base::View<float> gradient,
                                         float scale) {
    const shard::UnitSpec& unit = chain_.units[static_cast<std::size_t>(use.unit)];
    const shard::TensorPart& piece = unit.parts.front();
    const base::Elements n = walk.scored() * config_.width;
    const bool first = use == uses_[chain_.uses.size()];
    walk.kernels.training().head_backward(
        operand(scored_, n), shard::part_of(weights, piece), piece.first_row, walk.pack.targets,
        head_state(walk.scored()), scale, first ? Into::overwrite : Into::add,
        normed_gradient_.first(n), Into::overwrite, UnitGradient{unit, gradient}.of(piece.tensor),
        walk.compute);
}

void TrainableTransformer::layer_backward(const Walk& walk, const TrainingUse& use,
                                          base::ConstSlab weights, base::View<float> gradient) {
    const LayerCall call = call_of(walk, use.unit, use.index, weights);
    const LayerArrays arrays = arrays_of(use.index, walk.tokens());
    if (use.index + 1 == config_.layers) {
        final_norm_backward(walk, call, gradient);
    }
    if (forgets(use.index)) {
        attention_forward(call, arrays);
        gates_forward(call, arrays);
    }
    const LayerGradients gradients = gradients_of(arrays, walk.tokens());
    const UnitGradient unit{call.unit, gradient};
    feed_forward_backward(call, arrays, gradients, unit);
    attention_backward(call, arrays, gradients, unit);
}

// The head's input gradient becomes that of the residual stream: 0 in rows that are not scored.
void TrainableTransformer::final_norm_backward(const Walk& walk, const LayerCall& call,
                                               base::View<float> gradient) {
    kernels::TrainingKernels& training = walk.kernels.training();
    const base::Elements n = walk.scored() * config_.width;
    const kernels::Floats taken_gradient = normed_gradient_.first(n);
    const kernels::Floats stream = stream_gradient_.first(walk.tokens() * config_.width);
    training.rms_norm_backward(taken_.first(n), find(call.unit, call.weights, final_norm_name),
                               config_.norm_epsilon, taken_gradient, Into::overwrite,
                               taken_gradient, Into::overwrite,
                               UnitGradient{call.unit, gradient}.of(final_norm_name), walk.compute);
    training.clear(stream, walk.compute);
    training.take_rows_backward(taken_gradient, walk.pack.rows, stream, config_.width,
                                walk.compute);
}

void TrainableTransformer::embedding_backward(const Walk& walk, const TrainingUse& use,
                                              base::View<float> gradient) {
    const shard::UnitSpec& unit = chain_.units[static_cast<std::size_t>(use.unit)];
    const shard::TensorPart& piece = unit.parts.front();
    walk.kernels.training().embed_backward(
        walk.pack.ids, piece.first_row, stream_gradient_.first(walk.tokens() * config_.width),
        Into::overwrite, UnitGradient{unit, gradient}.of(piece.tensor), config_.width,
        walk.compute);
}

kernels::HeadState TrainableTransformer::head_state(base::Elements scored) const {
    kernels::HeadState state;
    state.maximum = head_maximum_.first(scored);
    state.sum = head_sum_.first(scored);
    state.target = head_target_.first(scored);
    state.best_id = head_best_.first(scored);
    return state;
}

LayerCall TrainableTransformer::call_of(const Walk& walk, base::UnitId unit, int index,
                                        base::ConstSlab weights) const {
    return {config_,
            chain_.units[static_cast<std::size_t>(unit)],
            weights,
            index,
            walk.pack.positions,
            walk.pack.offsets,
            cosines_.view(),
            sines_.view(),
            walk.kernels,
            walk.compute};
}

// Forward's output of the last layer lies where backward's first gradient of it will.
LayerArrays TrainableTransformer::arrays_of(int layer, base::Elements tokens) const {
    const auto at = static_cast<std::size_t>(layer);
    const ModelConfig& c = config_;
    const LayerMemory& memory = layers_[layers_.size() == 1 ? 0 : at];
    const base::Elements stream = tokens * c.width, ffn = tokens * c.ffn;
    const base::Elements query = tokens * c.heads * c.head_dim;
    const base::Elements key = tokens * c.kv_heads * c.head_dim;
    LayerArrays arrays;
    arrays.input = inputs_[at].first(stream);
    arrays.middle = memory.middle.first(stream);
    arrays.output = (at + 1 < inputs_.size() ? inputs_[at + 1] : stream_gradient_).first(stream);
    arrays.normed = operand(memory.normed, stream);
    arrays.normed_middle = operand(memory.normed_middle, stream);
    arrays.query = memory.query.first(query);
    arrays.key = memory.key.first(key);
    arrays.value = memory.value.first(key);
    arrays.plain_query = c.qk_norm ? memory.plain_query.first(query) : arrays.query;
    arrays.plain_key = c.qk_norm ? memory.plain_key.first(key) : arrays.key;
    arrays.lse = memory.lse.first(tokens * c.heads);
    arrays.mixed = operand(memory.mixed, query);
    arrays.gate = memory.gate.first(ffn);
    arrays.up = memory.up.first(ffn);
    arrays.gated = operand(memory.gated, ffn);
    return arrays;
}

LayerGradients TrainableTransformer::gradients_of(const LayerArrays& arrays,
                                                  base::Elements tokens) const {
    const ModelConfig& c = config_;
    const base::Elements stream = tokens * c.width, ffn = tokens * c.ffn;
    const base::Elements query = tokens * c.heads * c.head_dim;
    const base::Elements key = tokens * c.kv_heads * c.head_dim;
    LayerGradients gradients;
    gradients.stream = stream_gradient_.first(stream);
    gradients.normed = normed_gradient_.first(stream);
    gradients.gated = gated_gradient_.first(ffn);
    gradients.mixed = mixed_gradient_.first(query);
    gradients.query = query_gradient_.first(query);
    gradients.key = key_gradient_.first(key);
    gradients.value = value_gradient_.first(key);
    if (limits_.weights == base::DType::f32) {
        gradients.stream_operand = gradients.stream;
        gradients.up_operand = gradients.gated;
        gradients.query_operand = gradients.query;
        gradients.key_operand = gradients.key;
        gradients.value_operand = gradients.value;
        return gradients;
    }
    gradients.stream_operand = operand(stream_operand_, stream);
    gradients.up_operand = operand(up_operand_, ffn);
    gradients.query_operand = arrays.mixed; // read for the last time before queries are rounded
    gradients.key_operand = operand(key_operand_, key);
    gradients.value_operand = operand(value_operand_, key);
    return gradients;
}

base::Slab TrainableTransformer::operand(const device::Buffer<std::byte>& buffer,
                                         base::Elements n) const {
    return {buffer.view().data(), n, limits_.weights};
}

} // namespace foregather::model
