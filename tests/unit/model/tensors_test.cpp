// SPDX-License-Identifier: Apache-2.0
// The tensors a config implies, and a file's tensors held against them.
#include <algorithm>

#include <gtest/gtest.h>

#include "configs.hpp"

namespace foregather::model {
namespace {

ModelConfig config_with(const nlohmann::json& changes = nlohmann::json::object()) {
    return parse_config(config_text(changes), "f");
}

std::string said_of(const ModelConfig& config, const std::vector<base::TensorSpec>& stored) {
    try {
        check_tensors(config, stored, "tiny.h5");
    } catch (const base::Error& error) {
        return error.status() == base::Status::refused ? error.what() : "failed instead of refused";
    }
    return "";
}

const base::TensorSpec* find(const std::vector<base::TensorSpec>& tensors,
                             const std::string& name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const base::TensorSpec& t) { return t.name == name; });
    return found == tensors.end() ? nullptr : &*found;
}

TEST(Tensors, FollowTheConfig) {
    const auto tensors = tensors_of(config_with({{"head_dim", 6}}));
    EXPECT_EQ(tensors.size(), 1U + 3 * 9 + 2);
    EXPECT_EQ(tensors.front().name, "model.embed_tokens.weight");
    EXPECT_EQ(tensors.back().name, "lm_head.weight");
    const auto* q = find(tensors, "model.layers.2.self_attn.q_proj.weight");
    const auto* o = find(tensors, "model.layers.0.self_attn.o_proj.weight");
    const auto* k = find(tensors, "model.layers.1.self_attn.k_proj.weight");
    const auto* down = find(tensors, "model.layers.1.mlp.down_proj.weight");
    ASSERT_TRUE(q != nullptr && o != nullptr && k != nullptr && down != nullptr);
    EXPECT_EQ(q->shape, (base::Shape{24, 32}));
    EXPECT_EQ(o->shape, (base::Shape{32, 24}));
    EXPECT_EQ(k->shape, (base::Shape{12, 32}));
    EXPECT_EQ(down->shape, (base::Shape{32, 52}));
    EXPECT_EQ(find(tensors, "model.layers.0.self_attn.q_proj.bias"), nullptr);
}

TEST(Tensors, BiasesAndTheHeadFollowTheirFlags) {
    const auto tensors = tensors_of(
        config_with({{"attention_bias", true}, {"mlp_bias", true}, {"tie_word_embeddings", true}}));
    EXPECT_EQ(find(tensors, "lm_head.weight"), nullptr);
    EXPECT_EQ(tensors.size(), 1U + 3 * 16 + 1);
    const auto* o = find(tensors, "model.layers.0.self_attn.o_proj.bias");
    const auto* up = find(tensors, "model.layers.2.mlp.up_proj.bias");
    ASSERT_TRUE(o != nullptr && up != nullptr);
    EXPECT_EQ(o->shape, (base::Shape{32}));
    EXPECT_EQ(up->shape, (base::Shape{52}));
}

TEST(Tensors, QwenHasItsBiasesAndNorms) {
    const auto qwen2 = tensors_of(config_with(family("qwen2")));
    EXPECT_EQ(qwen2.size(), 1U + 3 * 12 + 2);
    const auto* k = find(qwen2, "model.layers.1.self_attn.k_proj.bias");
    ASSERT_NE(k, nullptr);
    EXPECT_EQ(k->shape, (base::Shape{16}));
    EXPECT_EQ(find(qwen2, "model.layers.1.self_attn.o_proj.bias"), nullptr);
    const auto qwen3 = tensors_of(config_with(family("qwen3", {{"head_dim", 24}})));
    EXPECT_EQ(qwen3.size(), 1U + 3 * 11 + 2);
    for (const char* name : {"q_norm", "k_norm"}) { // one weight a dimension, for all heads
        const auto* norm = find(qwen3, std::string("model.layers.2.self_attn.") + name + ".weight");
        ASSERT_NE(norm, nullptr);
        EXPECT_EQ(norm->shape, (base::Shape{24}));
    }
}

TEST(Tensors, AFileWithExactlyTheseIsTakenInAnyOrder) {
    const ModelConfig config = config_with();
    auto stored = tensors_of(config);
    std::reverse(stored.begin(), stored.end());
    EXPECT_EQ(said_of(config, stored), "");
}

TEST(Tensors, MissingUnexpectedAndMisshapedOnesAreToldAtOnce) {
    const ModelConfig config = config_with();
    auto stored = tensors_of(config);
    stored[3].name = "model.layers.0.self_attn.key.weight";
    stored.back().shape = {104, 32};
    const std::string text = said_of(config, stored);
    for (const char* part :
         {"tiny.h5", "missing: model.layers.0.self_attn.k_proj.weight [16, 32]",
          "unexpected: model.layers.0.self_attn.key.weight",
          "misshaped: lm_head.weight is [104, 32], the config asks for [101, 32]"}) {
        EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
    }
}

TEST(Tensors, AHeadBesideATiedEmbeddingIsUnexpected) {
    const auto stored = tensors_of(config_with());
    const std::string text = said_of(config_with({{"tie_word_embeddings", true}}), stored);
    EXPECT_NE(text.find("unexpected: lm_head.weight [101, 32] (the config ties"), std::string::npos)
        << text;
}

TEST(Tensors, AnUntiedModelWithoutAHeadIsRefused) {
    auto stored = tensors_of(config_with());
    stored.pop_back();
    EXPECT_NE(said_of(config_with(), stored).find("missing: lm_head.weight"), std::string::npos);
}

TEST(Tensors, ALongListIsCutAndCounted) {
    const std::string text = said_of(config_with(), {});
    EXPECT_NE(text.find("and 10 more"), std::string::npos) << text; // 30 tensors, 20 told
}

} // namespace
} // namespace foregather::model
