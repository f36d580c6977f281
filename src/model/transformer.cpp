// SPDX-License-Identifier: Apache-2.0
// The forward pass, one line per operation. Calls for packs without tokens or scored rows are left
// to the kernels, which do nothing then.
#include <foregather/model/transformer.hpp>

#include <utility>

#include <foregather/base/error.hpp>

#include "names.hpp"

namespace foregather::model {
namespace {

using kernels::Kernels;

// Elements of the activations: the one place that says how large they are.
struct Sizes {
    base::Elements stream; // [T, C]
    base::Elements query;  // [T, H, D]
    base::Elements key;    // [T, K, D]
    base::Elements ffn;    // [T, F]
    base::Elements table;  // [positions, D/2]
    base::Elements tokens; // [T]

    Sizes(const ModelConfig& c, base::Elements max_tokens, base::Elements max_document)
        : stream(max_tokens * c.width), query(max_tokens * c.heads * c.head_dim),
          key(max_tokens * c.kv_heads * c.head_dim), ffn(max_tokens * c.ffn),
          table(max_document * (c.head_dim / 2)), tokens(max_tokens) {}
};

// A tensor of a unit by name; without one (a bias that the model lacks) an empty slab.
base::ConstSlab find(const shard::UnitSpec& unit, base::ConstSlab weights,
                     const std::string& tensor) {
    for (const shard::TensorPart& part : unit.parts) {
        if (part.tensor == tensor) {
            return shard::part_of(weights, part);
        }
    }
    return {};
}

base::Elements count(kernels::Ids ids) { return static_cast<base::Elements>(ids.size()); }

} // namespace

Transformer::Transformer(ModelConfig config, Chain chain, device::Device& device,
                         base::Elements max_tokens, base::Elements max_document)
    : config_(std::move(config)), chain_(std::move(chain)), max_tokens_(max_tokens) {
    const Sizes n(config_, max_tokens, max_document);
    residual_ = {device, n.stream, "the residual stream"};
    normed_ = {device, n.stream, "normed activations"};
    query_ = {device, n.query, "queries"};
    key_ = {device, n.key, "keys"};
    value_ = {device, n.key, "values"};
    mixed_ = {device, n.query, "attention's output"};
    gate_ = {device, n.ffn, "gates"};
    up_ = {device, n.ffn, "up projections"};
    scored_ = {device, n.stream, "scored rows"};
    cosines_ = {device, n.table, "RoPE cosines"};
    sines_ = {device, n.table, "RoPE sines"};
    head_maximum_ = {device, n.tokens, "largest logits"};
    head_target_ = {device, n.tokens, "target logits"};
    head_sum_ = {device, n.tokens, "sums of exponentials"};
    head_best_ = {device, n.tokens, "most likely tokens"};

    const RopeTables tables = rope_tables(config_.rope, config_.head_dim, max_document);
    const auto stream = device.stream("RoPE tables", device::Priority::high);
    device.copy_in(base::View<const float>(tables.cosines), cosines_.view(), *stream);
    device.copy_in(base::View<const float>(tables.sines), sines_.view(), *stream);
    stream->sync();
}

base::Bytes Transformer::activation_bytes(const ModelConfig& config, base::Elements max_tokens,
                                          base::Elements max_document) {
    const Sizes n(config, max_tokens, max_document);
    const base::Elements floats =
        3 * n.stream + 2 * n.query + 2 * n.key + 2 * n.ffn + 2 * n.table + 2 * n.tokens;
    return {floats * static_cast<base::Elements>(sizeof(float)) +
            n.tokens * static_cast<base::Elements>(sizeof(double) + sizeof(std::int32_t))};
}

void Transformer::check(const PackView& pack) const {
    const base::Elements tokens = count(pack.ids), scored = count(pack.rows);
    if (tokens > max_tokens_ || count(pack.positions) != tokens || pack.offsets.empty() ||
        scored > tokens || count(pack.targets) != scored ||
        pack.logprob.size() != pack.rows.size() || pack.greedy.size() != pack.rows.size()) {
        base::fail("a pack of " + std::to_string(tokens) + " ids, " +
                   std::to_string(count(pack.positions)) + " positions, " +
                   std::to_string(count(pack.offsets)) + " offsets, " + std::to_string(scored) +
                   " scored rows, " + std::to_string(count(pack.targets)) + " targets and " +
                   std::to_string(pack.logprob.size()) + " results does not fit activations for " +
                   std::to_string(max_tokens_) + " tokens");
    }
}

void Transformer::forward(shard::WeightSource& weights, const PackView& pack, Kernels& kernels,
                          device::Stream& compute) {
    check(pack);
    const kernels::HeadState state = head_state(count(pack.rows));
    kernels.head_begin(state, compute);
    for (const ChainUse& use : chain_.uses) {
        const shard::UnitSpec& unit = chain_.units[static_cast<std::size_t>(use.unit)];
        const base::ConstSlab there = weights.acquire(use.unit, compute);
        switch (use.role) {
        case Role::embedding:
            embedding(unit, there, pack, kernels, compute);
            break;
        case Role::layer:
            layer(unit, there, use.index, pack, kernels, compute);
            break;
        case Role::head:
            head(unit, there, pack, kernels, compute);
            break;
        }
        weights.release(use.unit, compute);
    }
    kernels.head_end(state, pack.targets, pack.logprob, pack.greedy, compute);
}

kernels::HeadState Transformer::head_state(base::Elements scored) const {
    return {head_maximum_.first(scored), head_sum_.first(scored), head_target_.first(scored),
            head_best_.first(scored)};
}

void Transformer::embedding(const shard::UnitSpec& unit, base::ConstSlab weights,
                            const PackView& pack, Kernels& kernels, device::Stream& compute) {
    const shard::TensorPart& piece = unit.parts.front();
    kernels.embed(pack.ids, piece.first_row, shard::part_of(weights, piece),
                  residual_.first(count(pack.ids) * config_.width), config_.width, compute);
}

void Transformer::layer(const shard::UnitSpec& unit, base::ConstSlab weights, int index,
                        const PackView& pack, Kernels& k, device::Stream& compute) {
    const auto w = [&](const char* name) { return find(unit, weights, layer_tensor(index, name)); };
    const base::Elements tokens = count(pack.ids);
    const ModelConfig& c = config_;
    const base::View<float> residual = residual_.first(tokens * c.width);        // [T, C]
    const base::View<float> normed = normed_.first(tokens * c.width);            // [T, C]
    const base::View<float> query = query_.first(tokens * c.heads * c.head_dim); // [T, H, D]
    const base::View<float> key = key_.first(tokens * c.kv_heads * c.head_dim);  // [T, K, D]
    const base::View<float> value = value_.first(tokens * c.kv_heads * c.head_dim);
    const base::View<float> mixed = mixed_.first(tokens * c.heads * c.head_dim);
    const base::View<float> gate = gate_.first(tokens * c.ffn); // [T, F]
    const base::View<float> up = up_.first(tokens * c.ffn);
    const base::View<const float> cosines = cosines_.view(), sines = sines_.view();
    constexpr auto set = Kernels::Into::overwrite, add = Kernels::Into::add;

    k.rms_norm(residual, w("input_layernorm.weight"), c.norm_epsilon, normed, compute);
    k.product(normed, w("self_attn.q_proj.weight"), w("self_attn.q_proj.bias"), set, query, tokens,
              compute);
    k.product(normed, w("self_attn.k_proj.weight"), w("self_attn.k_proj.bias"), set, key, tokens,
              compute);
    k.product(normed, w("self_attn.v_proj.weight"), w("self_attn.v_proj.bias"), set, value, tokens,
              compute);
    k.rope(query, pack.positions, cosines, sines, c.heads, c.head_dim, compute);
    k.rope(key, pack.positions, cosines, sines, c.kv_heads, c.head_dim, compute);
    k.attention(query, key, value, pack.offsets, {c.heads, c.kv_heads, c.head_dim}, mixed, compute);
    k.product(mixed, w("self_attn.o_proj.weight"), w("self_attn.o_proj.bias"), add, residual,
              tokens, compute);

    k.rms_norm(residual, w("post_attention_layernorm.weight"), c.norm_epsilon, normed, compute);
    k.product(normed, w("mlp.gate_proj.weight"), w("mlp.gate_proj.bias"), set, gate, tokens,
              compute);
    k.product(normed, w("mlp.up_proj.weight"), w("mlp.up_proj.bias"), set, up, tokens, compute);
    k.silu_gate(gate, up, compute);
    k.product(gate, w("mlp.down_proj.weight"), w("mlp.down_proj.bias"), add, residual, tokens,
              compute);

    if (index == c.layers - 1) { // only scored rows go on to the head
        const base::View<float> scored = scored_.first(count(pack.rows) * c.width); // [S, C]
        k.take_rows(residual, pack.rows, scored, c.width, compute);
        k.rms_norm(scored, find(unit, weights, final_norm_name), c.norm_epsilon, scored, compute);
    }
}

void Transformer::head(const shard::UnitSpec& unit, base::ConstSlab weights, const PackView& pack,
                       Kernels& kernels, device::Stream& compute) {
    const shard::TensorPart& piece = unit.parts.front();
    const base::Elements scored = count(pack.rows);
    kernels.head_piece(scored_.first(scored * config_.width), shard::part_of(weights, piece),
                       piece.first_row, pack.targets, head_state(scored), compute);
}

} // namespace foregather::model
