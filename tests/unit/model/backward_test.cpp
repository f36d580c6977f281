// SPDX-License-Identifier: Apache-2.0
// Losses and gradients of whole models: against PyTorch's, over packs, and the same bits however
// they are computed.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "golden.hpp"

namespace foregather::model {
namespace {

constexpr double near = 1e-5; // of a tensor's largest entry

class ModelGradients : public ::testing::TestWithParam<std::string> {
protected:
    static golden::Example example() {
        const std::string name = GetParam();
        return std::filesystem::is_directory(golden::data() / name) ? golden::folder(name)
                                                                    : golden::small(name);
    }
};

TEST_P(ModelGradients, AreThoseOfPyTorch) {
    const golden::Example wanted = example();
    const float scale = golden::one_over_targets(wanted.documents);
    TrainingModel model(wanted.config, wanted.weights, {Recompute::layer, {2000}});
    const auto got = model.pass(wanted.documents, scale);
    EXPECT_NEAR(got.loss * static_cast<double>(scale), wanted.loss, 1e-6 * wanted.loss);
    EXPECT_EQ(far_from(got.gradients, wanted.gradients, near), "");
    EXPECT_GT(model.gradients.padding().entries, 0);
    EXPECT_EQ(model.gradients.padding().wrong, 0);
}

TEST_P(ModelGradients, HaveTheSameBitsWithAndWithoutRecomputation) {
    const golden::Example given = example();
    for (const base::DType type : {base::DType::f32, base::DType::bf16}) {
        TrainingOptions options{Recompute::layer, {2000}, type};
        const auto layer =
            TrainingModel(given.config, given.weights, options).pass(given.documents, 0.01F);
        options.recompute = Recompute::none;
        const auto none =
            TrainingModel(given.config, given.weights, options).pass(given.documents, 0.01F);
        EXPECT_EQ(layer.loss, none.loss);
        EXPECT_EQ(layer.gradients, none.gradients) << base::name_of(type);
    }
}

// What rounding operands changes is noise, everywhere; most in biases of keys, whose terms nearly
// cancel.
TEST_P(ModelGradients, OfBf16AreNearThoseOfTheSameWeightsInFp32) {
    golden::Example given = example();
    for (auto& [name, values] : given.weights) {
        const kernels::Lanes& plain = kernels::lanes(kernels::LaneLevel::sse2);
        std::vector<std::uint16_t> bits(values.size());
        plain.to_bf16(values.data(), bits.data(), std::ssize(values));
        plain.from_bf16(bits.data(), values.data(), std::ssize(values));
    }
    const float scale = golden::one_over_targets(given.documents);
    TrainingModel plain(given.config, given.weights, {Recompute::layer});
    TrainingModel rounded(given.config, given.weights,
                          {Recompute::layer, {2000}, base::DType::bf16});
    const auto wanted = plain.pass(given.documents, scale);
    const auto got = rounded.pass(given.documents, scale);
    EXPECT_NEAR(got.loss, wanted.loss, 0.01 * wanted.loss);
    EXPECT_NE(got.loss, wanted.loss);
    EXPECT_EQ(far_from(got.gradients, wanted.gradients, 0.1), "");
    EXPECT_NE(far_from(got.gradients, wanted.gradients, 1e-4), "");
    EXPECT_EQ(rounded.gradients.padding().wrong, 0);
}

TEST_P(ModelGradients, OfOnePackAreTheSumOverPacksOfItsDocuments) {
    const golden::Example given = example();
    const float scale = golden::one_over_targets(given.documents);
    TrainingModel model(given.config, given.weights);
    const auto whole = model.pass(given.documents, scale);
    double loss = 0;
    Tensors sums = filled(given.config, 0.0F);
    for (const auto& document : given.documents) {
        const auto part = model.pass({document}, scale);
        loss += part.loss;
        for (auto& [name, values] : sums) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] += part.gradients.at(name)[i];
            }
        }
    }
    EXPECT_NEAR(loss, whole.loss, 1e-6 * whole.loss);
    EXPECT_EQ(far_from(sums, whole.gradients, near), "");
}

INSTANTIATE_TEST_SUITE_P(Golden, ModelGradients,
                         ::testing::Values("llama", "llama-tied-odd", "llama3-rope",
                                           "mistral-window", "qwen2", "qwen3"),
                         [](const auto& name) {
                             std::string word = name.param;
                             std::replace(word.begin(), word.end(), '-', '_');
                             return word;
                         });
INSTANTIATE_TEST_SUITE_P(Small, ModelGradients,
                         ::testing::Values("llama_biases", "llama_tied_odd", "llama_wide_heads",
                                           "llama_one_layer", "llama_yarn", "mistral_window",
                                           "qwen2_windows", "qwen3_biases_windows_tied"),
                         [](const auto& name) { return name.param; });

} // namespace
} // namespace foregather::model
