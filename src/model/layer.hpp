// SPDX-License-Identifier: Apache-2.0
// One decoder layer, forward and backward, on arrays that the caller lays out: scoring overwrites
// them as it goes, training keeps what backward reads. Where they lie is decided by the caller.
#pragma once

#include <string>

#include <foregather/kernels/training.hpp>

#include "activations.hpp"

namespace foregather::model {

// What a layer is computed with. All of it must outlive the call; memory, the enqueued work.
struct LayerCall {
    const ModelConfig& config;
    const shard::UnitSpec& unit;
    base::ConstSlab weights; // of the unit
    int index;
    kernels::Ids positions, offsets; // of the pack
    kernels::ConstFloats cosines, sines;
    kernels::Kernels& kernels;
    device::Stream& compute;

    base::Elements tokens() const { return count(positions); }
    base::ConstSlab w(const std::string& name) const; // e.g. "mlp.up_proj.weight"
    kernels::AttentionShape attention() const;
};

// The arrays of a layer's forward pass. Those that "may be" another are that where backward does
// not follow.
struct LayerArrays {
    kernels::Floats input;       // [T, C] the residual stream
    kernels::Floats middle;      // [T, C] the same after attention; may be `input`
    kernels::Floats output;      // [T, C] the same after the layer; may be `middle`
    base::Slab normed;           // [T, C] what q, k and v multiply
    base::Slab normed_middle;    // [T, C] what gate and up multiply; may be `normed`
    kernels::Floats plain_query; // [T, H, D] before its norm; may be `query`, and is without norms
    kernels::Floats plain_key;   // [T, K, D]
    kernels::Floats query;       // [T, H, D]
    kernels::Floats key, value;  // [T, K, D]
    kernels::Floats lse;         // [T, H] log-sum-exp of attention's rows; may be empty
    base::Slab mixed;            // [T, H, D]
    kernels::Floats gate, up;    // [T, F]
    base::Slab gated;            // [T, F]
};

// input -> middle.
void attention_forward(const LayerCall& call, const LayerArrays& arrays);
// middle -> gated: all of the feed-forward that backward reads.
void gates_forward(const LayerCall& call, const LayerArrays& arrays);
// gated, middle -> output.
void down_forward(const LayerCall& call, const LayerArrays& arrays);

// The arrays of a layer's backward pass. Operands of products are of the weights' type: with fp32
// weights they are the arrays that they are rounded from.
struct LayerGradients {
    kernels::Floats stream;                // [T, C] of the output, becomes that of the input
    base::Slab stream_operand;             // [T, C]
    kernels::Floats normed;                // [T, C] of either norm's output
    kernels::Floats gated;                 // [T, F]
    base::Slab up_operand;                 // [T, F]; may be `gated`
    kernels::Floats mixed;                 // [T, H, D]
    kernels::Floats query;                 // [T, H, D]
    base::Slab query_operand;              // [T, H, D]
    kernels::Floats key, value;            // [T, K, D]
    base::Slab key_operand, value_operand; // [T, K, D]
};

// Gradients of one unit, of the layout of its weights.
struct UnitGradient {
    const shard::UnitSpec& unit;
    kernels::Floats memory; // of the whole unit and its padding

    // Of a tensor; empty for one that the unit lacks.
    kernels::Floats of(const std::string& tensor) const;
    // Zeros where no parameter is.
    void clear_padding(kernels::TrainingKernels& training, device::Stream& compute) const;
};

// Both write their tensors' gradients, and leave all but `input` and `middle` of the arrays
// undefined. First the feed-forward, then attention.
void feed_forward_backward(const LayerCall& call, const LayerArrays& arrays,
                           const LayerGradients& gradients, const UnitGradient& unit);
void attention_backward(const LayerCall& call, const LayerArrays& arrays,
                        const LayerGradients& gradients, const UnitGradient& unit);

} // namespace foregather::model
