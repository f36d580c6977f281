// SPDX-License-Identifier: Apache-2.0
// A whole training pass of a small model by emulated device kernels against the same by the host's:
// arrays that lie where others did, rows rounded up, gradients of every tensor. A pass of one order
// of threads; kernels alone are tested in all of them.
#include <tuple>

#include <gtest/gtest.h>

#include "../../unit/model/configs.hpp"
#include "../../unit/model/training_model.hpp"
#include "cuda_set.hpp"

namespace foregather::model {
namespace {

using base::DType;

using Case = std::tuple<nlohmann::json, DType, Recompute>;
class TrainingPassOnCuda : public testing::TestWithParam<Case> {};

TrainingModel::Outcome pass_on_cuda(const ModelConfig& config, const Tensors& tensors,
                                    const TrainingOptions& options, const Documents& documents,
                                    float scale) {
    kernels::HostSet set = kernels::cuda_set();
    const Chain chain = make_chain(config, options.piece_bytes);
    MemoryWeights weights(chain, tensors, visits_of(chain), options.type);
    MemoryGradients gradients(chain, weights);
    TrainableTransformer transformer(config, chain, *set.device,
                                     {options.tokens, options.tokens, options.type,
                                      set.kernels->row_multiple(), options.recompute});
    TrainingModel::Outcome outcome;
    Pack pack(documents);
    for (int repeated = 0; repeated < 2; ++repeated) { // what the first leaves must not matter
        gradients.forget();
        transformer.pass(weights, gradients, TrainingModel::view(pack, outcome.loss), scale,
                         *set.kernels, *set.stream);
        set.stream->sync();
    }
    outcome.gradients = gradients.sums(config);
    EXPECT_EQ(gradients.padding().wrong, 0);
    return outcome;
}

TEST_P(TrainingPassOnCuda, IsTheHosts) {
    const auto& [changes, type, recompute] = GetParam();
    const ModelConfig config = parse_config(config_text(changes), "f");
    const Tensors tensors = random_tensors(config, 2, 0.3F);
    const TrainingOptions options{recompute, {5000}, type};
    const Documents documents = {{3, 4, 7, 12, 19, 28, 39, 52, 67, 84}, {8}, {}, {5, 6, 9, 14}};
    const auto cuda = pass_on_cuda(config, tensors, options, documents, 0.1F);
    const auto host = TrainingModel(config, tensors, options).pass(documents, 0.1F);
    const bool fp32 = type == DType::f32;
    EXPECT_NEAR(cuda.loss, host.loss, (fp32 ? 1e-6 : 2e-3) * host.loss);
    EXPECT_EQ(far_from(cuda.gradients, host.gradients, fp32 ? 2e-5 : 0.03), "");
}

INSTANTIATE_TEST_SUITE_P(
    Models, TrainingPassOnCuda,
    testing::Values(Case{nlohmann::json::object(), DType::f32, Recompute::layer},
                    Case{nlohmann::json{{"attention_bias", true}, {"mlp_bias", true}}, DType::bf16,
                         Recompute::none},
                    Case{family("qwen3", {{"tie_word_embeddings", true}}), DType::f32,
                         Recompute::none},
                    Case{family("qwen3", {{"head_dim", 24}}), DType::bf16, Recompute::layer}));

TEST(TrainingPassWithoutTokensOnCuda, LeavesZeros) {
    const ModelConfig config = parse_config(config_text(), "f");
    const auto empty = pass_on_cuda(config, random_tensors(config, 2, 0.3F), {}, {}, 1.0F);
    EXPECT_EQ(empty.loss, 0.0);
    for (const auto& [name, values] : empty.gradients) {
        for (const float value : values) {
            ASSERT_EQ(value, 0.0F) << name;
        }
    }
}

} // namespace
} // namespace foregather::model
