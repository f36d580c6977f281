// SPDX-License-Identifier: Apache-2.0
// A layer backward, one line per operation: the derivatives of layer.cpp from its last line to its
// first. Calls without tokens are left to the kernels, which write zeros then.
#include "layer.hpp"

#include "names.hpp"

namespace foregather::model {
namespace {

using kernels::Into, kernels::Floats, base::ConstSlab, base::Slab;

// Rounds what goes into products; with fp32 both are the same memory.
Slab operand(const LayerCall& call, Floats from, Slab to) {
    if (to.data != base::Slab(from).data) {
        call.kernels.training().convert(from, to, call.compute);
    }
    return to;
}

// Of y = x w^T + bias, the tensors' gradients and that of x.
void linear(const LayerCall& call, const UnitGradient& unit, const std::string& name, ConstSlab dy,
            ConstSlab x, Into into, Floats dx) {
    kernels::TrainingKernels& training = call.kernels.training();
    const auto of = [&](const char* what) {
        return unit.of(layer_tensor(call.index, name + what));
    };
    training.product_weight_gradient(dy, x, Into::overwrite, of(".weight"), of(".bias"),
                                     call.tokens(), call.compute);
    training.product_input_gradient(dy, call.w(name + ".weight"), into, dx, call.tokens(),
                                    call.compute);
}

// Of a norm in front of products: its output's gradient goes on into the residual stream's.
void norm(const LayerCall& call, const UnitGradient& unit, const std::string& name, Floats x,
          const LayerGradients& g) {
    call.kernels.training().rms_norm_backward(
        x, call.w(name), call.config.norm_epsilon, g.normed, Into::add, g.stream, Into::overwrite,
        unit.of(layer_tensor(call.index, name)), call.compute);
}

// Of a norm of heads, where the gradient lies.
void head_norm(const LayerCall& call, const UnitGradient& unit, const std::string& name, Floats x,
               Floats gradient) {
    call.kernels.training().rms_norm_backward(
        x, call.w(name), call.config.norm_epsilon, gradient, Into::overwrite, gradient,
        Into::overwrite, unit.of(layer_tensor(call.index, name)), call.compute);
}

} // namespace

Floats UnitGradient::of(const std::string& tensor) const {
    const shard::TensorPart* part = part_named(unit, tensor);
    return part == nullptr ? Floats{}
                           : memory.subspan(static_cast<std::size_t>(part->offset),
                                            static_cast<std::size_t>(part->elements()));
}

void UnitGradient::clear_padding(kernels::TrainingKernels& training,
                                 device::Stream& compute) const {
    base::Elements written = 0;
    const auto clear_to = [&](base::Elements end) {
        training.clear(memory.subspan(static_cast<std::size_t>(written),
                                      static_cast<std::size_t>(end - written)),
                       compute);
    };
    for (const shard::TensorPart& part : unit.parts) {
        clear_to(part.offset);
        written = part.offset + part.elements();
    }
    clear_to(std::ssize(memory));
}

void feed_forward_backward(const LayerCall& call, const LayerArrays& a, const LayerGradients& g,
                           const UnitGradient& unit) {
    const Slab stream = operand(call, g.stream, g.stream_operand);
    linear(call, unit, "mlp.down_proj", stream, a.gated, Into::overwrite, g.gated);
    const Slab gate = a.gated, up = g.up_operand; // the product that read it is behind
    call.kernels.training().silu_gate_backward(a.gate, a.up, g.gated, gate, up, call.compute);
    linear(call, unit, "mlp.gate_proj", gate, a.normed_middle, Into::overwrite, g.normed);
    linear(call, unit, "mlp.up_proj", up, a.normed_middle, Into::add, g.normed);
    norm(call, unit, "post_attention_layernorm.weight", a.middle, g);
}

void attention_backward(const LayerCall& call, const LayerArrays& a, const LayerGradients& g,
                        const UnitGradient& unit) {
    const ModelConfig& c = call.config;
    kernels::TrainingKernels& training = call.kernels.training();
    device::Stream& compute = call.compute;

    const Slab stream = operand(call, g.stream, g.stream_operand);
    linear(call, unit, "self_attn.o_proj", stream, a.mixed, Into::overwrite, g.mixed);
    training.attention_backward(a.query, a.key, a.value, a.mixed, a.lse, g.mixed, call.offsets,
                                call.attention(), g.query, g.key, g.value, compute);
    training.rope_backward(g.query, call.positions, call.cosines, call.sines, c.heads, c.head_dim,
                           compute);
    training.rope_backward(g.key, call.positions, call.cosines, call.sines, c.kv_heads, c.head_dim,
                           compute);
    if (c.qk_norm) {
        head_norm(call, unit, "self_attn.q_norm.weight", a.plain_query, g.query);
        head_norm(call, unit, "self_attn.k_norm.weight", a.plain_key, g.key);
    }
    const Slab query = operand(call, g.query, g.query_operand);
    const Slab key = operand(call, g.key, g.key_operand);
    const Slab value = operand(call, g.value, g.value_operand);
    linear(call, unit, "self_attn.q_proj", query, a.normed, Into::overwrite, g.normed);
    linear(call, unit, "self_attn.k_proj", key, a.normed, Into::add, g.normed);
    linear(call, unit, "self_attn.v_proj", value, a.normed, Into::add, g.normed);
    norm(call, unit, "input_layernorm.weight", a.input, g);
}

} // namespace foregather::model
