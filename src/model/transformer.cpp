// SPDX-License-Identifier: Apache-2.0
// The forward pass of scoring: one set of arrays, overwritten by each layer. What a layer computes
// is decided in layer.cpp.
#include <foregather/model/transformer.hpp>

#include <algorithm>
#include <utility>

#include <foregather/base/error.hpp>

#include "layer.hpp"
#include "names.hpp"

namespace foregather::model {
namespace {

using kernels::Kernels;

// What only scoring is asked for, beside Sizes.
base::Elements weighted_of(const Limits& limits) { return limits.head.entropy ? limits.tokens : 0; }
base::Elements top_of(const Limits& limits) { return limits.tokens * limits.head.top_k; }

Sizes sizes_of(const ModelConfig& config, const Limits& limits) {
    return {config, limits.tokens, limits.document, limits.row_multiple};
}

} // namespace

Transformer::Transformer(ModelConfig config, Chain chain, device::Device& device,
                         const Limits& limits)
    : config_(std::move(config)), chain_(std::move(chain)), limits_(limits) {
    const Sizes n = sizes_of(config_, limits);
    const auto operands = [&](base::Elements count, const char* purpose) {
        return device::Buffer<std::byte>(device, base::bytes_of(count, limits.weights).count,
                                         purpose);
    };
    residual_ = {device, n.stream, "the residual stream"};
    normed_ = operands(n.stream, "normed activations");
    query_ = {device, n.query, "queries"};
    key_ = {device, n.key, "keys"};
    value_ = {device, n.key, "values"};
    mixed_ = operands(n.query, "attention's output");
    gate_ = {device, n.ffn, "gates"};
    up_ = {device, n.ffn, "up projections"};
    gated_ = operands(n.ffn, "gated activations");
    taken_ = {device, n.taken, "rows taken for the head"};
    scored_ = operands(n.stream, "scored rows");
    cosines_ = {device, n.table, "RoPE cosines"};
    sines_ = {device, n.table, "RoPE sines"};
    head_maximum_ = {device, n.tokens, "largest logits"};
    head_target_ = {device, n.tokens, "target logits"};
    head_sum_ = {device, n.tokens, "sums of exponentials"};
    head_best_ = {device, n.tokens, "most likely tokens"};
    head_weighted_ = {device, weighted_of(limits), "weighted sums of exponentials"};
    head_top_ = {device, top_of(limits), "lists of the most likely tokens"};

    upload_rope_tables(config_, limits.document, device, cosines_, sines_);
}

std::vector<kernels::ProductShape> products_of(const ModelConfig& c, const Chain& chain,
                                               const Limits& limits) {
    std::vector<kernels::ProductShape> products;
    const auto list = [&](base::Elements in, base::Elements out, bool bias, kernels::Into into,
                          bool logits = false) {
        const kernels::ProductShape shape{limits.tokens, in,   out,   limits.weights,
                                          bias,          into, logits};
        if (std::find(products.begin(), products.end(), shape) == products.end()) {
            products.push_back(shape);
        }
    };
    constexpr auto set = kernels::Into::overwrite, add = kernels::Into::add;
    const base::Elements query = base::Elements{c.heads} * c.head_dim;
    const base::Elements key = base::Elements{c.kv_heads} * c.head_dim;
    list(c.width, query, c.qkv_bias, set);
    list(c.width, key, c.qkv_bias, set);
    list(query, c.width, c.output_bias, add);
    list(c.width, c.ffn, c.mlp_bias, set);
    list(c.ffn, c.width, c.mlp_bias, add);
    for (const ChainUse& use : chain.uses) {
        if (use.role == Role::head) {
            const auto& unit = chain.units[static_cast<std::size_t>(use.unit)];
            list(c.width, unit.parts.front().rows, false, set, true);
        }
    }
    return products;
}

base::Bytes Transformer::activation_bytes(const ModelConfig& config, const Limits& limits) {
    const Sizes n = sizes_of(config, limits);
    const base::Elements floats =
        n.stream + n.taken + n.query + 2 * n.key + 2 * n.ffn + 2 * n.table + 2 * n.tokens;
    const base::Elements operands = 2 * n.stream + n.query + n.ffn;
    return base::bytes_of(floats, base::DType::f32) + base::bytes_of(operands, limits.weights) +
           base::Bytes{n.tokens *
                       static_cast<base::Elements>(sizeof(double) + sizeof(std::int32_t))} +
           base::Bytes{weighted_of(limits) * static_cast<base::Elements>(sizeof(double))} +
           base::Bytes{top_of(limits) * static_cast<base::Elements>(sizeof(kernels::TopToken))};
}

base::Slab Transformer::operand(const device::Buffer<std::byte>& buffer, base::Elements n) const {
    return {buffer.view().data(), n, limits_.weights};
}

void Transformer::check(const PackView& pack) const {
    const base::Elements tokens = count(pack.ids), scored = count(pack.rows);
    if (tokens > limits_.tokens || count(pack.positions) != tokens || pack.offsets.empty() ||
        scored > tokens || count(pack.targets) != scored ||
        pack.results.logprob.size() != pack.rows.size() ||
        pack.results.greedy.size() != pack.rows.size() ||
        std::ssize(pack.logits) != (limits_.head.logits ? scored * config_.vocabulary : 0) ||
        std::ssize(pack.hidden) != (limits_.head.hidden ? scored * config_.width : 0)) {
        base::fail("a pack of " + std::to_string(tokens) + " ids, " +
                   std::to_string(count(pack.positions)) + " positions, " +
                   std::to_string(count(pack.offsets)) + " offsets, " + std::to_string(scored) +
                   " scored rows, " + std::to_string(count(pack.targets)) + " targets and " +
                   std::to_string(pack.results.logprob.size()) +
                   " results does not fit activations for " + std::to_string(limits_.tokens) +
                   " tokens");
    }
}

void Transformer::forward(shard::WeightSource& weights, const PackView& pack, Kernels& kernels,
                          device::Stream& compute) {
    check(pack);
    const kernels::HeadState state = head_state(pack);
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
    kernels.head_end(state, pack.targets, pack.results, compute);
}

kernels::HeadState Transformer::head_state(const PackView& pack) const {
    const base::Elements rows = count(pack.rows);
    return {head_maximum_.first(rows),
            head_sum_.first(rows),
            head_target_.first(rows),
            head_best_.first(rows),
            logits_scale(),
            head_weighted_.first(limits_.head.entropy ? rows : 0),
            head_top_.first(rows * limits_.head.top_k),
            pack.logits};
}

void Transformer::embedding(const shard::UnitSpec& unit, base::ConstSlab weights,
                            const PackView& pack, Kernels& kernels, device::Stream& compute) {
    const shard::TensorPart& piece = unit.parts.front();
    kernels.embed(pack.ids, piece.first_row, shard::part_of(weights, piece),
                  residual_.first(count(pack.ids) * config_.width), config_.width, compute);
}

LayerArrays Transformer::arrays(base::Elements tokens) const {
    const ModelConfig& c = config_;
    const auto residual = residual_.first(tokens * c.width);
    const auto normed = operand(normed_, tokens * c.width);
    const auto query = query_.first(tokens * c.heads * c.head_dim);
    const auto key = key_.first(tokens * c.kv_heads * c.head_dim);
    LayerArrays arrays;
    arrays.input = arrays.middle = arrays.output = residual;
    arrays.normed = arrays.normed_middle = normed;
    arrays.query = arrays.plain_query = query;
    arrays.key = arrays.plain_key = key;
    arrays.value = value_.first(tokens * c.kv_heads * c.head_dim);
    arrays.mixed = operand(mixed_, tokens * c.heads * c.head_dim);
    arrays.gate = gate_.first(tokens * c.ffn);
    arrays.up = up_.first(tokens * c.ffn);
    arrays.gated = operand(gated_, tokens * c.ffn);
    return arrays;
}

void Transformer::layer(const shard::UnitSpec& unit, base::ConstSlab weights, int index,
                        const PackView& pack, Kernels& k, device::Stream& compute) {
    const LayerCall call{
        config_,         unit,          weights, index,  pack.positions, pack.offsets,
        cosines_.view(), sines_.view(), k,       compute};
    const LayerArrays all = arrays(count(pack.ids));
    attention_forward(call, all);
    gates_forward(call, all);
    down_forward(call, all);
    if (index == config_.layers - 1) { // only rows whose prediction is asked for go on to the head
        const base::Elements width = config_.width, n = count(pack.rows) * width;
        k.take_rows(all.output, pack.rows, taken_.first(n), width, compute); // [S, C]
        k.rms_norm(taken_.first(n), find(unit, weights, final_norm_name), config_.norm_epsilon,
                   operand(scored_, n), compute);
        if (limits_.head.hidden) { // in fp32, whatever the head multiplies
            k.rms_norm(taken_.first(n), find(unit, weights, final_norm_name), config_.norm_epsilon,
                       pack.hidden, compute);
        }
    }
}

void Transformer::head(const shard::UnitSpec& unit, base::ConstSlab weights, const PackView& pack,
                       Kernels& kernels, device::Stream& compute) {
    const shard::TensorPart& piece = unit.parts.front();
    const base::Elements scored = count(pack.rows);
    kernels.head_piece(operand(scored_, scored * config_.width), shard::part_of(weights, piece),
                       piece.first_row, pack.targets, head_state(pack), compute);
}

} // namespace foregather::model
