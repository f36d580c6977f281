// SPDX-License-Identifier: Apache-2.0
// What a training pass promises beside its numbers: order, memory, threads, empty packs, scale, and
// what it refuses.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "configs.hpp"
#include "training_model.hpp"

namespace foregather::model {
namespace {

using nlohmann::json;

ModelConfig config_with(const json& changes = json::object()) {
    return parse_config(config_text(changes), "f");
}

const json tied = {{"tie_word_embeddings", true}};
const json normed_heads = family("qwen3", {{"head_dim", 24}, {"num_key_value_heads", 1}});
const Documents documents = {
    {3, 4, 7, 12, 19, 28, 39, 52, 67, 84}, {8}, {17, 18}, {}, {5, 6, 9, 14, 21, 30, 41}};

TEST(Training, UsesAreTheChainThereAndBack) {
    const auto words_of = [](const Chain& chain) {
        std::string words;
        for (const TrainingUse& use : training_uses(chain)) {
            words += chain.units[static_cast<std::size_t>(use.unit)].name;
            words += use.backward ? "'" : "";
            words += use.needs_weights ? " " : "- ";
        }
        return words;
    };
    EXPECT_EQ(words_of(make_chain(config_with({{"num_hidden_layers", 2}}), {7000})),
              "embedding.0 embedding.1 layer.0 layer.1 head.0 head.1 "
              "head.1' head.0' layer.1' layer.0' embedding.1'- embedding.0'- ");
    EXPECT_EQ(words_of(make_chain(
                  config_with({{"num_hidden_layers", 1}, {"tie_word_embeddings", true}}), {7000})),
              "embedding.0 embedding.1 layer.0 embedding.1 embedding.0 "
              "embedding.0' embedding.1' layer.0' embedding.1'- embedding.0'- ");
}

TEST(Training, EachUseIsVisitedOnceAndEachBackwardOneGivesAGradient) {
    for (const json& changes : {json::object(), tied}) {
        const ModelConfig config = config_with(changes);
        TrainingModel model(config, random_tensors(config, 2, 0.3F), {Recompute::layer, {5000}});
        model.pass(documents, 1.0F);
        EXPECT_EQ(model.weights.uses(), 2 * model.chain.uses.size());
        EXPECT_EQ(model.gradients.uses(), model.chain.uses.size());
    }
}

TEST(Training, HasTheSameBitsOnAnyNumberOfThreads) {
    const ModelConfig config = config_with(normed_heads);
    const Tensors tensors = random_tensors(config, 2, 0.3F);
    TrainingOptions options;
    const auto expected = TrainingModel(config, tensors, options).pass(documents, 0.1F);
    for (const int threads : {2, 3}) {
        options.threads = threads;
        const auto got = TrainingModel(config, tensors, options).pass(documents, 0.1F);
        EXPECT_EQ(got.loss, expected.loss);
        EXPECT_EQ(got.gradients, expected.gradients) << threads;
    }
}

TEST(Training, LaterPassesAreNotTouchedByEarlierOnes) {
    const ModelConfig config = config_with();
    for (const Recompute recompute : {Recompute::layer, Recompute::none}) {
        TrainingModel model(config, random_tensors(config, 2, 0.3F), {recompute});
        const auto first = model.pass(documents, 0.1F);
        model.pass({std::vector<std::int32_t>(300, 50), {1, 2}}, 3.0F);
        const auto again = model.pass(documents, 0.1F);
        EXPECT_EQ(again.loss, first.loss);
        EXPECT_EQ(again.gradients, first.gradients);
    }
}

TEST(Training, GradientsAreScaledAndTheLossIsNot) {
    const ModelConfig config = config_with(tied);
    TrainingModel model(config, random_tensors(config, 2, 0.3F));
    const auto once = model.pass(documents, 0.25F);
    auto twice = model.pass(documents, 0.5F);
    EXPECT_EQ(twice.loss, once.loss);
    for (auto& [name, values] : twice.gradients) {
        for (float& x : values) {
            x /= 2;
        }
    }
    EXPECT_EQ(twice.gradients, once.gradients);
    EXPECT_NE(once.gradients, filled(config, 0.0F));
}

TEST(Training, EmptyPacksVisitEveryUnitAndWriteZeroGradients) {
    for (const json& changes : {json::object(), tied, normed_heads, json{{"mlp_bias", true}}}) {
        const ModelConfig config = config_with(changes);
        for (const Recompute recompute : {Recompute::layer, Recompute::none}) {
            TrainingModel model(config, filled(config, std::nanf("")), {recompute, {5000}});
            const auto got = model.pass(Documents{}, 1.0F);
            EXPECT_EQ(got.loss, 0.0);
            EXPECT_EQ(got.gradients, filled(config, 0.0F));
            EXPECT_EQ(model.gradients.padding().wrong, 0);
            EXPECT_EQ(model.weights.uses(), 2 * model.chain.uses.size());
            EXPECT_EQ(model.gradients.uses(), model.chain.uses.size());
        }
    }
}

TEST(Training, PacksWithNothingToScoreWriteZeroGradients) {
    const ModelConfig config = config_with(normed_heads);
    TrainingModel model(config, random_tensors(config, 2, 0.3F));
    model.pass(documents, 1.0F); // leaves something behind
    const auto rowless = model.pass({{1}, {2}, {}}, 1.0F);
    EXPECT_EQ(rowless.loss, 0.0);
    EXPECT_EQ(rowless.gradients, filled(config, 0.0F));
    Pack unscored(documents);
    unscored.targets.assign(unscored.targets.size(), -1);
    const auto targetless = model.pass(unscored, 1.0F);
    EXPECT_EQ(targetless.loss, 0.0);
    EXPECT_EQ(targetless.gradients, filled(config, 0.0F));
}

TEST(Training, RowsWithoutATargetAreAsIfTheyWereNotAskedFor) {
    const ModelConfig config = config_with();
    TrainingModel model(config, random_tensors(config, 2, 0.3F));
    Pack masked(documents), shorter(documents);
    masked.targets[0] = masked.targets[1] = -1;
    shorter.targets.erase(shorter.targets.begin(), shorter.targets.begin() + 2);
    shorter.rows.erase(shorter.rows.begin(), shorter.rows.begin() + 2);
    const auto expected = model.pass(shorter, 0.1F), got = model.pass(masked, 0.1F);
    EXPECT_NEAR(got.loss, expected.loss, 1e-6 * expected.loss);
    EXPECT_EQ(far_from(got.gradients, expected.gradients, 1e-6), "");
}

TEST(Training, LossesThatAreNotNumbersAreTold) {
    const ModelConfig config = config_with();
    TrainingModel model(config, filled(config, std::nanf("")));
    EXPECT_TRUE(std::isnan(model.pass(documents, 1.0F).loss));
}

TEST(Training, EvaluationGivesTheSameLossAndNoGradient) {
    const ModelConfig config = config_with(tied);
    const Tensors tensors = random_tensors(config, 2, 0.3F);
    TrainingModel model(config, tensors, {Recompute::layer, {5000}});
    MemoryWeights forward(model.chain, tensors);
    Pack pack(documents);
    double loss = std::nan("");
    model.transformer.evaluate(forward, TrainingModel::view(pack, loss), *model.kernels,
                               *model.stream);
    model.stream->sync();
    EXPECT_EQ(forward.uses(), model.chain.uses.size());
    EXPECT_EQ(model.gradients.uses(), 0U);
    EXPECT_EQ(model.pass(documents, 0.1F).loss, loss);
    // Scoring, the same layers on other arrays, agrees.
    double scored = 0;
    for (const float logprob : TinyModel(config, tensors).score(documents)) {
        scored -= static_cast<double>(logprob);
    }
    EXPECT_NEAR(scored, loss, 1e-6 * loss);
}

TEST(Training, AllocatesExactlyWhatItAnnounces) {
    for (const json& changes : {json::object(), normed_heads}) {
        const ModelConfig config = config_with(changes);
        for (const Recompute recompute : {Recompute::layer, Recompute::none}) {
            for (const base::DType type : {base::DType::f32, base::DType::bf16}) {
                const TrainingLimits limits{77, 33, type, 32, recompute};
                const auto device = device::make_host_device(1);
                const TrainableTransformer transformer(config, make_chain(config, {0}), *device,
                                                       limits);
                // The tables' staging is host memory, which is not among it.
                EXPECT_EQ(device->allocated().count,
                          TrainableTransformer::activation_bytes(config, limits).count);
            }
        }
    }
}

TEST(Training, RecomputationKeepsOneArrayPerLayer) {
    const auto bytes = [](int layers, Recompute recompute) {
        const TrainingLimits limits{64, 64, base::DType::f32, 1, recompute};
        return TrainableTransformer::activation_bytes(config_with({{"num_hidden_layers", layers}}),
                                                      limits)
            .count;
    };
    EXPECT_EQ(bytes(9, Recompute::layer) - bytes(8, Recompute::layer), 64 * 32 * 4);
    EXPECT_GT(bytes(9, Recompute::none) - bytes(8, Recompute::none), 10 * 64 * 32 * 4);
}

TEST(Training, AllocatesNothingWhileRunning) {
    const ModelConfig config = config_with();
    TrainingModel model(config, random_tensors(config, 2, 0.3F), {Recompute::layer, {5000}});
    const int before = model.device->allocations();
    model.pass(documents, 1.0F);
    EXPECT_EQ(model.device->allocations(), before);
}

TEST(Training, RefusesAPackThatDoesNotFit) {
    const ModelConfig config = config_with();
    TrainingModel model(config, random_tensors(config, 2, 0.3F),
                        {Recompute::layer, {0}, base::DType::f32, 1, 16});
    const auto said_of = [&](Pack pack) -> std::string {
        try {
            model.pass(std::move(pack), 1.0F);
        } catch (const base::Error& error) {
            return error.what();
        }
        return "";
    };
    const Pack large({std::vector<std::int32_t>(17, 1)});
    EXPECT_EQ(said_of(large).rfind("a pack of 17 ids, 17 positions", 0), 0U);
    Pack untargeted({std::vector<std::int32_t>(9, 1)});
    untargeted.targets.pop_back();
    EXPECT_NE(said_of(untargeted).find("8 scored rows, 7 targets"), std::string::npos);
    EXPECT_EQ(model.weights.uses(), 0U);
    EXPECT_EQ(said_of(Pack({std::vector<std::int32_t>(16, 1)})), "");
}

TEST(Training, RefusesAGradientWithTooLittleRoom) {
    const ModelConfig config = config_with();
    TrainingModel model(config, random_tensors(config, 2, 0.3F));
    MemoryGradients small(model.chain, model.weights, -128);
    Pack pack(documents);
    double loss = 0;
    std::string said;
    try {
        model.transformer.pass(model.weights, small, TrainingModel::view(pack, loss), 1.0F,
                               *model.kernels, *model.stream);
    } catch (const base::Error& error) {
        said = error.what();
    }
    model.stream->sync();
    EXPECT_EQ(said.rfind("the gradient of head.0 was given room for", 0), 0U) << said;
}

} // namespace
} // namespace foregather::model
