// SPDX-License-Identifier: Apache-2.0
// The forward pass of random models against the definition in double, and what it promises about
// memory, order, threads and empty packs.
#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "configs.hpp"
#include "memory_weights.hpp"
#include "reference.hpp"

namespace foregather::model {
namespace {

using nlohmann::json;

ModelConfig config_with(const json& changes = json::object()) {
    return parse_config(config_text(changes), "f");
}

std::vector<std::int32_t> document(std::size_t length, std::int32_t first) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < length; ++i) {
        ids.push_back((first + static_cast<std::int32_t>(i * i)) % 101);
    }
    return ids;
}

const std::vector<std::vector<std::int32_t>> documents = {
    document(64, 3), document(1, 8), document(2, 17), document(200, 5), document(29, 90)};

struct Variant {
    const char* name;
    json changes;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class Models : public ::testing::TestWithParam<Variant> {};

TEST_P(Models, FollowTheDefinition) {
    const ModelConfig config = config_with(GetParam().changes);
    const Tensors tensors = random_tensors(config, 11, 0.4F);
    TinyModel model(config, tensors, {5000});
    const std::vector<float> scores = model.score(documents);
    const Reference reference(config, tensors);
    std::size_t s = 0;
    for (const auto& ids : documents) {
        for (const double expected : reference.score(ids)) {
            ASSERT_NEAR(scores.at(s), expected, 2e-5) << "score " << s;
            ++s;
        }
    }
    EXPECT_EQ(s, scores.size());
}

INSTANTIATE_TEST_SUITE_P(
    Transformer, Models,
    ::testing::Values(
        Variant{"GroupedHeads", json::object()}, Variant{"Tied", {{"tie_word_embeddings", true}}},
        Variant{"OddShapes",
                {{"hidden_size", 40},
                 {"intermediate_size", 51},
                 {"num_key_value_heads", 1},
                 {"head_dim", 10}}},
        Variant{"AttentionBias", {{"attention_bias", true}}},
        Variant{"MlpBias", {{"mlp_bias", true}}},
        Variant{"HeadsWiderThanTheModel", {{"head_dim", 24}}},
        Variant{"Llama3Rope", {{"rope_scaling", llama3_rope()}}},
        Variant{"LinearRope", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 3.0}}}}},
        Variant{"YarnRope",
                {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}, {"head_dim", 16}}},
        Variant{"MistralWindow", family("mistral", {{"sliding_window", 9}})},
        Variant{"MistralWindowOfOne", family("mistral", {{"sliding_window", 1}})},
        Variant{"Qwen2WindowsByLayer", family("qwen2", {{"use_sliding_window", true},
                                                        {"sliding_window", 5},
                                                        {"max_window_layers", 1}})},
        Variant{"Qwen3", family("qwen3", {{"head_dim", 24}})},
        Variant{"Qwen3BiasesAndWindowsByLayer",
                family("qwen3", {{"attention_bias", true},
                                 {"use_sliding_window", true},
                                 {"sliding_window", 70},
                                 {"layer_types",
                                  {"sliding_attention", "full_attention", "sliding_attention"}},
                                 {"tie_word_embeddings", true}})},
        Variant{"LargeEpsilon", {{"rms_norm_eps", 0.3}}},
        Variant{"OneLayer", {{"num_hidden_layers", 1}, {"num_key_value_heads", 4}}}),
    [](const auto& variant) { return variant.param.name; });

// d7, T10: the window counts the token itself; one that holds all keys is none, bit for bit.
TEST(Transformer, T10WindowsCountTheTokenItself) {
    const std::vector<std::int32_t> five = document(5, 3);
    std::map<int, std::vector<float>> scores; // 0: null
    for (const int window : {2, 3, 4, 5, 0}) {
        const ModelConfig config = config_with(
            family("mistral", {{"num_hidden_layers", 1},
                               {"sliding_window", window > 0 ? json(window) : json()}}));
        const Tensors tensors = random_tensors(config, 11, 0.4F);
        scores[window] = TinyModel(config, tensors).score({five});
        const std::vector<double> expected = Reference(config, tensors).score(five);
        ASSERT_EQ(scores[window].size(), 4U);
        for (std::size_t s = 0; s < 4; ++s) {
            EXPECT_NEAR(scores[window][s], expected[s], 1e-5) << window << ", score " << s;
        }
    }
    EXPECT_EQ(scores[5], scores[0]);
    EXPECT_EQ(scores[4], scores[0]); // the last score is of four keys
    for (const int window : {2, 3}) {
        const auto n = static_cast<std::size_t>(window);
        for (std::size_t s = 0; s < n; ++s) {
            EXPECT_EQ(scores[window][s], scores[0][s]) << window;
        }
        EXPECT_GT(std::abs(scores[window][n] - scores[0][n]), 1e-3F) << window;
    }
}

TEST(Transformer, T10LongDocumentsUnderAWindowThatHoldsThemKeepTheirBits) {
    const auto scored = [](const json& window) {
        const ModelConfig config = config_with(family("mistral", {{"sliding_window", window}}));
        return TinyModel(config, random_tensors(config, 11, 0.4F)).score(documents);
    };
    EXPECT_EQ(scored(200), scored(nullptr));
    EXPECT_NE(scored(198), scored(nullptr)); // the last score is of 199 keys
}

TEST(Transformer, HasTheSameBitsOnAnyNumberOfThreads) {
    const ModelConfig config = config_with();
    const Tensors tensors = random_tensors(config, 2, 0.3F);
    const std::vector<float> expected = TinyModel(config, tensors, {0}, 1).score(documents);
    EXPECT_EQ(TinyModel(config, tensors, {0}, 2).score(documents), expected);
    EXPECT_EQ(TinyModel(config, tensors, {0}, 3).score(documents), expected);
}

TEST(Transformer, LaterPassesAreNotTouchedByEarlierOnes) {
    const ModelConfig config = config_with();
    TinyModel model(config, random_tensors(config, 2, 0.3F));
    const std::vector<float> first = model.score(documents);
    model.score({document(300, 1), document(50, 2)});
    EXPECT_EQ(model.score(documents), first);
}

TEST(Transformer, AllocatesExactlyWhatItAnnounces) {
    for (const json& changes :
         {json::object(), json{{"head_dim", 24}, {"num_key_value_heads", 1}}}) {
        const ModelConfig config = config_with(changes);
        const auto device = device::make_host_device(1);
        const base::Bytes before = device->allocated();
        const Transformer transformer(config, make_chain(config, {0}), *device, {77, 33});
        EXPECT_EQ((device->allocated() - before).count,
                  Transformer::activation_bytes(config, {77, 33}).count);
    }
}

TEST(Transformer, AllocatesNothingWhileRunning) {
    const ModelConfig config = config_with();
    TinyModel model(config, random_tensors(config, 2, 0.3F), {5000}, 2);
    const int before = model.device->allocations();
    model.score(documents);
    EXPECT_EQ(model.device->allocations(), before);
}

TEST(Transformer, EmptyPacksVisitEveryUnitAndComputeNothing) {
    const ModelConfig config = config_with({{"tie_word_embeddings", true}});
    TinyModel model(config, filled(config, std::nanf("")), {5000});
    Pack pack({});
    model.forward(pack);
    EXPECT_EQ(model.weights.uses(), model.chain.uses.size());
    EXPECT_TRUE(pack.logprob.empty());
}

TEST(Transformer, PacksWithNothingToScoreVisitEveryUnit) {
    const ModelConfig config = config_with();
    TinyModel model(config, random_tensors(config, 2, 0.3F), {5000});
    EXPECT_TRUE(model.score({{1}, {2}, {}}).empty());
    EXPECT_EQ(model.weights.uses(), model.chain.uses.size());
}

TEST(Transformer, RowsThatAreNotScoredChangeNothing) {
    const ModelConfig config = config_with();
    TinyModel model(config, random_tensors(config, 2, 0.3F));
    Pack whole({document(40, 7)}), part({document(40, 7)});
    model.forward(whole);
    part.rows.erase(part.rows.begin(), part.rows.begin() + 30);
    part.targets.erase(part.targets.begin(), part.targets.begin() + 30);
    part.logprob.resize(9);
    part.greedy.resize(9);
    model.forward(part);
    for (std::size_t s = 0; s < 9; ++s) {
        EXPECT_NEAR(part.logprob[s], whole.logprob[30 + s], 1e-6F);
    }
}

TEST(Transformer, RefusesAPackThatDoesNotFit) {
    const ModelConfig config = config_with();
    TinyModel model(config, random_tensors(config, 2, 0.3F), {0}, 1, 16);
    const auto said_of = [&](Pack pack) -> std::string {
        try {
            model.forward(pack);
        } catch (const base::Error& error) {
            return error.what();
        }
        return "";
    };
    const Pack large({document(9, 1), document(8, 2)});
    EXPECT_EQ(said_of(large).rfind("a pack of 17 ids, 17 positions", 0), 0U);
    Pack uneven({document(9, 1)});
    uneven.positions.pop_back();
    EXPECT_EQ(said_of(uneven).rfind("a pack of 9 ids, 8 positions", 0), 0U);
    Pack untargeted({document(9, 1)});
    untargeted.targets.pop_back();
    EXPECT_NE(said_of(untargeted).find("8 scored rows, 7 targets"), std::string::npos);
    EXPECT_EQ(model.weights.uses(), 0U);
    EXPECT_EQ(said_of(Pack({document(16, 1)})), "");
}

} // namespace
} // namespace foregather::model
