// SPDX-License-Identifier: Apache-2.0
// What a training pass asks of its kernels: products that were listed before, memory for the rows
// that they touch beyond those they are asked for, arrays that are not each other, one
// recomputation of a layer. Numbers are tested elsewhere.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/kernels/training.hpp>

#include "../../support/apart_device.hpp"
#include "configs.hpp"
#include "training_model.hpp"

namespace foregather::model {
namespace {

using kernels::AttentionShape, kernels::ConstFloats, kernels::ConstSlab, kernels::Elements;
using kernels::Floats, kernels::HeadState, kernels::Ids, kernels::Into, kernels::Product;
using kernels::ProductShape, kernels::Slab, kernels::Stream, base::View;

// Computes nothing; looks whether products find room, and counts them.
class Looking final : public kernels::Kernels, private kernels::TrainingKernels {
public:
    explicit Looking(const tests::ApartDevice& device) : device_(device) {}
    static constexpr Elements multiple = 32;
    Elements row_multiple() const override { return multiple; }
    kernels::TrainingKernels& training() override { return *this; }
    std::string product_name() const override { return "none"; }
    std::optional<double> product_seconds() const override { return std::nullopt; }

    int forward = 0, inputs = 0, weights = 0; // products asked for
    int without_room = 0, one_array = 0;
    std::vector<ProductShape> asked;

    static constexpr Elements limit = 77; // tokens

private:
    void keep(Product product, ConstSlab operand, Elements in, Elements out, Into into,
              bool bias = false, bool logits = false) {
        const ProductShape shape{limit, in, out, operand.type, bias, into, logits, product};
        if (std::find(asked.begin(), asked.end(), shape) == asked.end()) {
            asked.push_back(shape);
        }
    }
    void look(ConstSlab x, Elements rows) {
        const Elements up = (rows + multiple - 1) / multiple * multiple;
        without_room += device_.holds(x.data, up * (x.bytes().count / rows)) ? 0 : 1;
    }
    void do_product(ConstSlab x, ConstSlab, ConstSlab bias, Into into, Floats y, Elements rows,
                    Stream&) override {
        ++forward;
        keep(Product::output, x, x.n / rows, std::ssize(y) / rows, into, bias.n > 0);
        look(x, rows);
        look(y, rows);
    }
    void do_product_input_gradient(ConstSlab dy, ConstSlab, Into into, Floats dx, Elements rows,
                                   Stream&) override {
        ++inputs;
        keep(Product::input_gradient, dy, std::ssize(dx) / rows, dy.n / rows, into);
        look(dy, rows);
        look(dx, rows);
        one_array += dy.data == Slab(dx).data ? 1 : 0;
    }
    void do_product_weight_gradient(ConstSlab dy, ConstSlab x, Into into, Floats, Floats,
                                    Elements rows, Stream&) override {
        ++weights;
        keep(Product::weight_gradient, dy, x.n / rows, dy.n / rows, into);
        look(dy, rows);
        look(x, rows);
        one_array += dy.data == x.data ? 1 : 0;
    }
    void keep_head(Product product, ConstSlab x, ConstSlab w, Elements rows) {
        keep(product, x, x.n / rows, w.n / (x.n / rows), Into::overwrite, false, true);
    }
    void do_head_piece(ConstSlab x, ConstSlab w, Elements, Ids targets, HeadState,
                       Stream&) override {
        keep_head(Product::output, x, w, std::ssize(targets));
        look(x, std::ssize(targets));
    }
    void do_head_backward(ConstSlab x, ConstSlab w, Elements, Ids targets, HeadState, float, Into,
                          Floats dx, Into, Floats, Stream&) override {
        keep_head(Product::input_gradient, x, w, std::ssize(targets));
        keep_head(Product::weight_gradient, x, w, std::ssize(targets));
        look(x, std::ssize(targets));
        look(dx, std::ssize(targets));
    }
    void do_attention_backward(ConstFloats q, ConstFloats k, ConstFloats v, ConstSlab out,
                               ConstFloats lse, Floats dout, Ids, AttentionShape, Floats dq,
                               Floats dk, Floats dv, Stream&) override {
        const std::vector<const void*> arrays = {q.data(),  k.data(),   v.data(),
                                                 out.data,  lse.data(), dout.data(),
                                                 dq.data(), dk.data(),  dv.data()};
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            for (std::size_t j = 0; j < i; ++j) {
                one_array += arrays[i] == arrays[j] ? 1 : 0;
            }
        }
    }

    void do_embed(Ids, Elements, ConstSlab, Floats, Elements, Stream&) override {}
    void do_rms_norm(ConstFloats, ConstSlab, float, Slab, Stream&) override {}
    void do_rope(Floats, Ids, ConstFloats, ConstFloats, int, int, Stream&) override {}
    void do_attention(Floats, Floats, Floats, Ids, AttentionShape, Slab, Floats, Stream&) override {
    }
    void do_silu_gate(ConstFloats, ConstFloats, Slab, Stream&) override {}
    void do_take_rows(ConstFloats, Ids, Floats, Elements, Stream&) override {}
    void do_head_begin(HeadState, Stream&) override {}
    void do_head_end(HeadState, Ids, kernels::HeadResults, Stream&) override {}
    void do_convert(ConstFloats, Slab, Stream&) override {}
    void do_rms_norm_backward(ConstFloats, ConstSlab, float, ConstFloats, Into, Floats, Into,
                              Floats, Stream&) override {}
    void do_rope_backward(Floats, Ids, ConstFloats, ConstFloats, int, int, Stream&) override {}
    void do_silu_gate_backward(ConstFloats, ConstFloats, ConstFloats, Slab, Slab,
                               Stream&) override {}
    void do_embed_backward(Ids, Elements, ConstFloats, Into, Floats, Elements, Stream&) override {}
    void do_take_rows_backward(ConstFloats, Ids, Floats, Elements, Stream&) override {}
    void do_loss(HeadState, Ids, Into, View<double>, Stream&) override {}
    void do_adamw(Floats, ConstFloats, Floats, Floats, const kernels::AdamwStep&, Slab,
                  Stream&) override {}
    void do_sum_of_squares(ConstFloats, Into, View<double>, Stream&) override {}
    void do_add(ConstSlab, Floats, Stream&) override {}
    void do_scale(Floats, float, Stream&) override {}
    void do_clear(Floats, Stream&) override {}

    const tests::ApartDevice& device_;
};

using Case = std::tuple<nlohmann::json, base::DType, Recompute>;
class TrainingRoom : public testing::TestWithParam<Case> {};

TEST_P(TrainingRoom, IsThereForRowsBeyondTheirsAndProductsAreListedAndMadeOnce) {
    const auto& [changes, type, recompute] = GetParam();
    const ModelConfig config = parse_config(config_text(changes), "f");
    const Chain chain = make_chain(config, {5000});
    tests::ApartDevice device;
    Looking kernels(device);
    TrainableTransformer transformer(config, chain, device,
                                     {Looking::limit, 80, type, Looking::multiple, recompute});
    MemoryWeights weights(chain, filled(config, 0.5F), visits_of(chain), type);
    MemoryGradients gradients(chain, weights);
    const auto stream = device.stream("compute", device::Priority::normal);
    Pack pack({std::vector<std::int32_t>(77, 1)});
    double loss = 0;
    transformer.pass(weights, gradients, TrainingModel::view(pack, loss), 1.0F, kernels, *stream);
    stream->sync();
    EXPECT_EQ(kernels.without_room, 0);
    EXPECT_EQ(kernels.one_array, 0);
    // Of a layer's seven products the last is not needed again, of the last layer none.
    const int again = recompute == Recompute::layer ? 6 * (config.layers - 1) : 0;
    EXPECT_EQ(kernels.forward, 7 * config.layers + again);
    EXPECT_EQ(kernels.inputs, 7 * config.layers);
    EXPECT_EQ(kernels.weights, 7 * config.layers);
    const auto listed = transformer.products();
    EXPECT_TRUE(std::is_permutation(listed.begin(), listed.end(), kernels.asked.begin(),
                                    kernels.asked.end()));
}

INSTANTIATE_TEST_SUITE_P(
    Models, TrainingRoom,
    testing::Combine(testing::Values(nlohmann::json::object(), nlohmann::json{{"head_dim", 24}},
                                     nlohmann::json{{"attention_bias", true}},
                                     family("qwen3", {{"tie_word_embeddings", true}})),
                     testing::Values(base::DType::f32, base::DType::bf16),
                     testing::Values(Recompute::none, Recompute::layer)));

} // namespace
} // namespace foregather::model
