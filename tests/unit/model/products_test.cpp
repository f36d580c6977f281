// SPDX-License-Identifier: Apache-2.0
// What a model tells of its products before a run: every shape that a pass asks for and no other,
// and memory for the rows that products touch beyond those. What products compute is elsewhere.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "../../support/apart_device.hpp"
#include "configs.hpp"
#include "memory_weights.hpp"

namespace foregather::model {
namespace {

using kernels::ConstFloats, kernels::ConstSlab, kernels::Elements, kernels::Floats, kernels::Ids;
using kernels::HeadResults, kernels::HeadState, kernels::ProductShape, kernels::Slab;
using kernels::Stream;

// Computes nothing; keeps what products were asked for, and whether there was room to round up.
class Listening final : public kernels::Kernels {
public:
    Listening(const tests::ApartDevice& device, Elements multiple)
        : device_(device), multiple_(multiple) {}
    Elements row_multiple() const override { return multiple_; }
    std::string product_name() const override { return "none"; }
    std::optional<double> product_seconds() const override { return std::nullopt; }

    std::vector<ProductShape> asked;
    int without_room = 0;

private:
    void keep(const ProductShape& shape) {
        if (std::find(asked.begin(), asked.end(), shape) == asked.end()) {
            asked.push_back(shape);
        }
    }
    void look(const void* data, Elements rows, Elements row_bytes) {
        const Elements up = (rows + multiple_ - 1) / multiple_ * multiple_;
        without_room += device_.holds(data, up * row_bytes) ? 0 : 1;
    }
    void do_product(ConstSlab x, ConstSlab, ConstSlab bias, Into into, Floats y, Elements tokens,
                    Stream&) override {
        const Elements in = x.n / tokens, out = std::ssize(y) / tokens;
        keep({limit, in, out, x.type, bias.n > 0, into});
        look(x.data, tokens, in * base::size_of(x.type));
        look(y.data(), tokens, out * 4);
    }
    void do_head_piece(ConstSlab x, ConstSlab w, Elements, Ids targets, HeadState,
                       Stream&) override {
        const Elements in = x.n / std::ssize(targets);
        keep({limit, in, w.n / in, x.type, false, Into::overwrite, true});
        look(x.data, std::ssize(targets), in * base::size_of(x.type));
    }
    void do_embed(Ids, Elements, ConstSlab, Floats, Elements, Stream&) override {}
    void do_rms_norm(ConstFloats, ConstSlab, float, Slab, Stream&) override {}
    void do_rope(Floats, Ids, ConstFloats, ConstFloats, int, int, Stream&) override {}
    void do_attention(Floats, Floats, Floats, Ids, kernels::AttentionShape, Slab, Floats,
                      Stream&) override {}
    void do_silu_gate(ConstFloats, ConstFloats, Slab, Stream&) override {}
    void do_take_rows(ConstFloats, Ids, Floats, Elements, Stream&) override {}
    void do_head_begin(HeadState, Stream&) override {}
    void do_head_end(HeadState, Ids, HeadResults, Stream&) override {}

    const tests::ApartDevice& device_;
    Elements multiple_;

public:
    static constexpr Elements limit = 77;
};

class ProductsTest : public testing::TestWithParam<nlohmann::json> {};

TEST_P(ProductsTest, AreListedBeforeTheRunAndFindRoomForRowsBeyondTheirs) {
    const ModelConfig config = parse_config(config_text(GetParam()), "f");
    const Chain chain = make_chain(config, {5000}); // the last piece of the head is shorter
    tests::ApartDevice device;
    Listening kernels(device, 32);
    const base::Bytes before = device.allocated();
    const Limits limits{Listening::limit, 80, base::DType::f32, {}, kernels.row_multiple()};
    Transformer transformer(config, chain, device, limits);
    EXPECT_EQ((device.allocated() - before).count,
              Transformer::activation_bytes(config, limits).count);
    MemoryWeights weights(chain, filled(config, 0.5F));
    const auto stream = device.stream("compute", device::Priority::normal);
    Pack pack({std::vector<std::int32_t>(77, 1)});
    transformer.forward(weights, pack.view(), kernels, *stream);
    stream->sync();
    EXPECT_EQ(kernels.without_room, 0);
    EXPECT_GE(kernels.asked.size(), 6U);
    const auto listed = transformer.products();
    EXPECT_TRUE(std::is_permutation(listed.begin(), listed.end(), kernels.asked.begin(),
                                    kernels.asked.end()));
}

INSTANTIATE_TEST_SUITE_P(Models, ProductsTest,
                         testing::Values(nlohmann::json::object(),
                                         nlohmann::json{{"attention_bias", true}},
                                         nlohmann::json{{"mlp_bias", true}},
                                         nlohmann::json{{"head_dim", 24}},
                                         nlohmann::json{{"tie_word_embeddings", true}},
                                         family("qwen2", nlohmann::json::object())));

} // namespace
} // namespace foregather::model
