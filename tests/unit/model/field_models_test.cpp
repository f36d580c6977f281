// SPDX-License-Identifier: Apache-2.0
// Models small enough that the right answers are known by hand: the bigram checkpoint (F-BG), the
// uniform one (F-U), a lone value entry (T12), a dim embedding (T14).
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "configs.hpp"
#include "memory_weights.hpp"

namespace foregather::model {
namespace {

const float ln2 = std::log(2.0F);

ModelConfig tiny_config(const nlohmann::json& changes = nlohmann::json::object()) {
    nlohmann::json all = {{"hidden_size", 4},         {"intermediate_size", 4},
                          {"num_hidden_layers", 2},   {"num_attention_heads", 2},
                          {"num_key_value_heads", 1}, {"head_dim", 2},
                          {"vocab_size", 4},          {"max_position_embeddings", 4096}};
    all.update(changes);
    return parse_config(config_text(all), "f");
}

void set_identity(std::vector<float>& matrix, std::size_t width, float value) {
    for (std::size_t i = 0; i * width + i < matrix.size() && i < width; ++i) {
        matrix[i * width + i] = value;
    }
}

Tensors with_unit_norms(const ModelConfig& config) {
    Tensors tensors = filled(config, 0.0F);
    for (auto& [name, values] : tensors) {
        if (name.find("norm") != std::string::npos) {
            std::fill(values.begin(), values.end(), 1.0F);
        }
    }
    return tensors;
}

// The next token is i + 1, i + 2, i + 3, i with 1/2, 1/4, 1/8, 1/8.
Tensors bigram(const ModelConfig& config, float embedding = 1000.0F) {
    Tensors tensors = with_unit_norms(config);
    set_identity(tensors["model.embed_tokens.weight"], 4, embedding);
    const float half_log[] = {-1.03972077F, -0.34657359F, -0.69314718F, -1.03972077F};
    for (std::size_t i = 0; i < 4; ++i) {
        for (std::size_t step = 0; step < 4; ++step) {
            tensors["lm_head.weight"][(i + step) % 4 * 4 + i] = half_log[step];
        }
    }
    return tensors;
}

TEST(Bigram, AnswersArePowersOfTwo) {
    TinyModel model(tiny_config(), bigram(tiny_config()));
    Pack pack({{0, 1, 2, 3}, {0, 0}, {0, 1, 2, 3, 2, 3, 0, 1, 0, 1}});
    model.forward(pack);
    const std::vector<float> costs = {1, 1, 1, 3, 1, 1, 1, 3, 1, 1, 1, 3, 1};
    ASSERT_EQ(pack.logprob.size(), costs.size());
    for (std::size_t s = 0; s < costs.size(); ++s) {
        EXPECT_NEAR(pack.logprob[s], -costs[s] * ln2, 1e-6F) << s;
        EXPECT_EQ(pack.greedy[s], costs[s] == 1.0F ? 1 : 0) << s;
    }
}

TEST(Bigram, AnyCutOfEmbeddingAndHeadGivesTheSameAnswers) {
    for (const std::int64_t piece : {1, 32, 48, 64}) { // 1, 2, 3, 4 rows a piece
        TinyModel model(tiny_config(), bigram(tiny_config()), {piece});
        const std::vector<float> logprob = model.score({{0, 1, 2, 3}, {3, 3}, {2, 0}});
        const std::vector<float> costs = {1, 1, 1, 3, 2};
        for (std::size_t s = 0; s < costs.size(); ++s) {
            EXPECT_NEAR(logprob[s], -costs[s] * ln2, 1e-6F) << s << ", pieces of " << piece;
        }
    }
}

// d8, T14: the embedding is so small that epsilon shows.
TEST(Bigram, NormEpsilonComesFromTheConfig) {
    for (const auto& [epsilon, expected] : {std::pair{1e-5, -1.2550639}, {1e-6, -1.0329637}}) {
        const ModelConfig config = tiny_config({{"rms_norm_eps", epsilon}});
        TinyModel model(config, bigram(config, 0.001F));
        EXPECT_NEAR(model.score({{0, 1}}).at(0), expected, 1e-5) << epsilon;
    }
}

// c10, c11, T17: ln 97, never ln 100, 104 or 128, whatever the cut.
TEST(Uniform, EveryTokenCostsTheLogOfTheVocabulary) {
    const ModelConfig config = tiny_config({{"vocab_size", 97}});
    Tensors tensors = random_tensors(config, 5, 0.5F);
    std::fill(tensors["lm_head.weight"].begin(), tensors["lm_head.weight"].end(), 0.0F);
    std::vector<std::int32_t> document;
    for (std::int32_t id = 0; id < 97; ++id) {
        document.push_back(id);
    }
    for (const std::int64_t piece : {0, 160, 16 * 50}) {
        TinyModel model(config, tensors, {piece});
        double sum = 0;
        const std::vector<float> scores = model.score({document});
        for (const float logprob : scores) {
            EXPECT_NEAR(logprob, -4.5747110, 1e-5);
            sum -= static_cast<double>(logprob);
        }
        EXPECT_NEAR(std::exp(sum / static_cast<double>(scores.size())), 97.0, 1e-3);
    }
}

// d4: heads x head_dim is not the width; head 1 reads kv head 0, head 2 reads kv head 1.
TEST(HeadDim, T12IsItsOwnNumberAndKeyValueHeadsAreSharedInBlocks) {
    const ModelConfig config = tiny_config({{"num_hidden_layers", 1},
                                            {"num_attention_heads", 4},
                                            {"num_key_value_heads", 2},
                                            {"rms_norm_eps", 1e-12}});
    Tensors tensors = with_unit_norms(config);
    set_identity(tensors["model.embed_tokens.weight"], 4, 1.0F);
    tensors["model.layers.0.self_attn.v_proj.weight"][0] = 1.0F;
    tensors["lm_head.weight"][2 * 4 + 3] = 1.0F;
    for (const auto& [column, expected] : {std::pair{2, -0.4064344}, {4, -1.3862944}}) {
        Tensors with_output = tensors;
        with_output["model.layers.0.self_attn.o_proj.weight"]
                   [3 * 8 + static_cast<std::size_t>(column)] = 1;
        TinyModel model(config, with_output);
        EXPECT_NEAR(model.score({{0, 2}}).at(0), expected, 1e-6) << column;
    }
}

TEST(Bigram, ANanWeightNeverGivesAPlausibleAnswer) {
    Tensors tensors = bigram(tiny_config());
    tensors["model.layers.1.mlp.down_proj.weight"][5] = std::nanf("");
    TinyModel model(tiny_config(), tensors);
    for (const float logprob : model.score({{0, 1, 2}})) {
        EXPECT_TRUE(std::isnan(logprob));
    }
}

} // namespace
} // namespace foregather::model
