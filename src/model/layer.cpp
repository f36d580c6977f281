// SPDX-License-Identifier: Apache-2.0
// A layer forward, one line per operation. Calls without tokens are left to the kernels, which do
// nothing then.
#include "layer.hpp"

#include "names.hpp"

namespace foregather::model {
namespace {

using kernels::Kernels;

constexpr auto set = Kernels::Into::overwrite, add = Kernels::Into::add;

// What a product is then added to, where the residual stream before it is kept.
void carry(const LayerCall& call, kernels::Floats from, kernels::Floats to) {
    if (from.data() != to.data()) {
        call.kernels.training().convert(from, to, call.compute);
    }
}

} // namespace

base::ConstSlab LayerCall::w(const std::string& name) const {
    return find(unit, weights, layer_tensor(index, name));
}

kernels::AttentionShape LayerCall::attention() const {
    return {config.heads, config.kv_heads, config.head_dim,
            config.windows[static_cast<std::size_t>(index)]};
}

void attention_forward(const LayerCall& call, const LayerArrays& a) {
    const ModelConfig& c = call.config;
    Kernels& k = call.kernels;
    device::Stream& compute = call.compute;
    const base::Elements tokens = call.tokens();
    const auto w = [&](const char* name) { return call.w(std::string("self_attn.") + name); };

    k.rms_norm(a.input, call.w("input_layernorm.weight"), c.norm_epsilon, a.normed, compute);
    k.product(a.normed, w("q_proj.weight"), w("q_proj.bias"), set, a.plain_query, tokens, compute);
    k.product(a.normed, w("k_proj.weight"), w("k_proj.bias"), set, a.plain_key, tokens, compute);
    k.product(a.normed, w("v_proj.weight"), w("v_proj.bias"), set, a.value, tokens, compute);
    if (c.qk_norm) {
        k.rms_norm(a.plain_query, w("q_norm.weight"), c.norm_epsilon, a.query, compute);
        k.rms_norm(a.plain_key, w("k_norm.weight"), c.norm_epsilon, a.key, compute);
    }
    k.rope(a.query, call.positions, call.cosines, call.sines, c.heads, c.head_dim, compute);
    k.rope(a.key, call.positions, call.cosines, call.sines, c.kv_heads, c.head_dim, compute);
    k.attention(a.query, a.key, a.value, call.offsets, call.attention(), a.mixed, compute, a.lse);
    carry(call, a.input, a.middle);
    k.product(a.mixed, w("o_proj.weight"), w("o_proj.bias"), add, a.middle, tokens, compute);
}

void gates_forward(const LayerCall& call, const LayerArrays& a) {
    Kernels& k = call.kernels;
    device::Stream& compute = call.compute;
    const base::Elements tokens = call.tokens();

    k.rms_norm(a.middle, call.w("post_attention_layernorm.weight"), call.config.norm_epsilon,
               a.normed_middle, compute);
    k.product(a.normed_middle, call.w("mlp.gate_proj.weight"), call.w("mlp.gate_proj.bias"), set,
              a.gate, tokens, compute);
    k.product(a.normed_middle, call.w("mlp.up_proj.weight"), call.w("mlp.up_proj.bias"), set, a.up,
              tokens, compute);
    k.silu_gate(a.gate, a.up, a.gated, compute);
}

void down_forward(const LayerCall& call, const LayerArrays& a) {
    carry(call, a.middle, a.output);
    call.kernels.product(a.gated, call.w("mlp.down_proj.weight"), call.w("mlp.down_proj.bias"), add,
                         a.output, call.tokens(), call.compute);
}

} // namespace foregather::model
