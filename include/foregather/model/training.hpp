// SPDX-License-Identifier: Apache-2.0
// The forward and backward pass of training: a walk along the chain and back, acquire, compute,
// hand over the gradient, release at each use. It knows the maths' order and what backward reads of
// forward, and nothing of ranks, gathers, reductions or the optimizer.
#pragma once

#include <vector>

#include <foregather/base/view.hpp>
#include <foregather/device/device.hpp>
#include <foregather/kernels/kernels.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/shard/gradient_sink.hpp>
#include <foregather/shard/weight_source.hpp>

namespace foregather::model {

struct LayerArrays;    // src/model/layer.hpp
struct LayerCall;      // there
struct LayerGradients; // there

// What backward reads of a layer: all that forward made, kept; or forward's once more, from the
// layer's input and the weights that its backward needs anyway. The same bits.
enum class Recompute { none, layer };

// What the memory is laid out for.
struct TrainingLimits {
    base::Elements tokens = 0;   // T, of the largest pack
    base::Elements document = 0; // longest one, or window: positions of the RoPE tables
    // Type of the gathered weights: fp32 or bf16. Inputs of products are rounded to it, also
    // gradients; sums, gradients of weights, norms and the residual stream stay fp32 or better.
    base::DType weights = base::DType::f32;
    base::Elements row_multiple = 1; // Kernels::row_multiple()
    Recompute recompute = Recompute::layer;
};

// A pack of whole documents in device memory, and where its loss goes. All of it must live until
// the pass is done on the compute stream.
struct TrainingPack {
    kernels::Ids ids;        // [T]
    kernels::Ids positions;  // [T], from 0 in each document
    kernels::Ids offsets;    // [documents + 1] into T
    kernels::Ids rows;       // [S] token positions whose prediction counts; distinct
    kernels::Ids targets;    // [S] ids of the tokens after them, -1 where none is scored
    base::View<double> loss; // [1] out: the sum of -logprob of the targets, 0 if there is none
};

// One visit of a pass to a unit.
struct TrainingUse {
    base::UnitId unit = 0;
    Role role = Role::layer;
    int index = 0; // of the piece or layer
    bool backward = false;
    bool needs_weights = true; // not the embedding's backward

    friend bool operator==(const TrainingUse&, const TrainingUse&) = default;
};

// The uses of one pass: the chain's, then the same in reverse order.
std::vector<TrainingUse> training_uses(const Chain& chain);

class TrainableTransformer {
public:
    // Allocates all that a pass needs, and RoPE tables. Blocks for the tables. What products read
    // and write has rows up to the next limits.row_multiple.
    TrainableTransformer(ModelConfig config, Chain chain, device::Device& device,
                         const TrainingLimits& limits);

    // Enqueues forward and backward of a pack; does not block. Each of training_uses(), in order,
    // is acquired and released once, also those that need no weights (what acquire() returns is
    // not read then); between the two a backward use begins and ends its gradient: `scale` times
    // that of the pack's loss (1 / the number of targets of the whole step). A pack without tokens
    // computes nothing but visits every unit and writes zero gradients alike. Throws Error(failed)
    // for a pack larger than limits.tokens or with uneven arrays, and for too small a gradient.
    void pass(shard::WeightSource& weights, shard::GradientSink& gradients,
              const TrainingPack& pack, float scale, kernels::Kernels& kernels,
              device::Stream& compute);

    // Forward alone: the uses of the chain, the pack's loss, no gradient. Otherwise as pass().
    void evaluate(shard::WeightSource& weights, const TrainingPack& pack, kernels::Kernels& kernels,
                  device::Stream& compute);

    // Every product of a pass of up to limits.tokens tokens, forward and backward, each shape once:
    // what Kernels::prepare() is told.
    std::vector<kernels::ProductShape> products() const;

    // Device memory that the constructor allocates, to the byte.
    static base::Bytes activation_bytes(const ModelConfig& config, const TrainingLimits& limits);

private:
    // What the uses of a pass have in common.
    struct Walk {
        shard::WeightSource& weights;
        const TrainingPack& pack;
        kernels::Kernels& kernels;
        device::Stream& compute;

        base::Elements tokens() const { return static_cast<base::Elements>(pack.ids.size()); }
        base::Elements scored() const { return static_cast<base::Elements>(pack.rows.size()); }
    };
    // What a layer's backward reads beside its input.
    struct LayerMemory {
        device::Buffer<float> middle, plain_query, plain_key, query, key, value, lse, gate, up;
        device::Buffer<std::byte> normed, normed_middle, mixed, gated;
    };

    void check(const TrainingPack& pack) const;
    LayerMemory layer_memory(device::Device& device) const;
    void forward(const Walk& walk);
    void backward(const Walk& walk, shard::GradientSink& gradients, float scale);
    void layer_forward(const Walk& walk, const ChainUse& use, base::ConstSlab weights);
    void head_backward(const Walk& walk, const TrainingUse& use, base::ConstSlab weights,
                       base::View<float> gradient, float scale);
    void layer_backward(const Walk& walk, const TrainingUse& use, base::ConstSlab weights,
                        base::View<float> gradient);
    void final_norm_backward(const Walk& walk, const LayerCall& call, base::View<float> gradient);
    void embedding_backward(const Walk& walk, const TrainingUse& use, base::View<float> gradient);

    kernels::HeadState head_state(base::Elements scored) const;
    LayerCall call_of(const Walk& walk, base::UnitId unit, int index,
                      base::ConstSlab weights) const;
    LayerArrays arrays_of(int layer, base::Elements tokens) const;
    LayerGradients gradients_of(const LayerArrays& arrays, base::Elements tokens) const;
    base::Slab operand(const device::Buffer<std::byte>& buffer, base::Elements n) const;
    // Is what forward made of this layer overwritten by the next before backward reads it?
    bool forgets(int layer) const {
        return limits_.recompute == Recompute::layer && layer + 1 < config_.layers;
    }

    ModelConfig config_;
    Chain chain_;
    std::vector<TrainingUse> uses_;
    TrainingLimits limits_;
    std::vector<device::Buffer<float>> inputs_; // of each layer
    std::vector<LayerMemory> layers_;           // one for all of them, or each its own
    device::Buffer<float> taken_;               // rows for the head, before the final norm
    device::Buffer<std::byte> scored_;          // after it
    // Gradients: of the residual stream (forward's last output before), of norms' outputs (the
    // head's input first), and inside a layer.
    device::Buffer<float> stream_gradient_, normed_gradient_, gated_gradient_, mixed_gradient_;
    device::Buffer<float> query_gradient_, key_gradient_, value_gradient_;
    // The same rounded, where weights are not fp32; others lie where they are not read any more.
    device::Buffer<std::byte> stream_operand_, up_operand_, key_operand_, value_operand_;
    device::Buffer<float> cosines_, sines_;
    device::Buffer<float> head_maximum_, head_target_;
    device::Buffer<double> head_sum_;
    device::Buffer<std::int32_t> head_best_;
};

} // namespace foregather::model
