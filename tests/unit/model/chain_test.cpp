// SPDX-License-Identifier: Apache-2.0
// How a model is cut into units, and the order of one forward pass.
#include <gtest/gtest.h>

#include "configs.hpp"

#include <foregather/model/chain.hpp>

namespace foregather::model {
namespace {

ModelConfig config_with(const nlohmann::json& changes = nlohmann::json::object()) {
    return parse_config(config_text(changes), "f");
}

std::vector<std::string> order_of(const Chain& chain) {
    std::vector<std::string> names;
    for (const ChainUse& use : chain.uses) {
        names.push_back(chain.units[static_cast<std::size_t>(use.unit)].name);
    }
    return names;
}

TEST(Chain, AnUntiedModelRunsFromEmbeddingToHead) {
    const Chain chain = make_chain(config_with(), {0});
    EXPECT_EQ(order_of(chain),
              (std::vector<std::string>{"embedding.0", "layer.0", "layer.1", "layer.2", "head.0"}));
    EXPECT_EQ(chain.units.size(), 5U);
    EXPECT_EQ(chain.uses[1].role, Role::layer);
    EXPECT_EQ(chain.uses[3].index, 2);
    EXPECT_EQ(chain.units[4].parts.front().tensor, "lm_head.weight");
}

// Rows of 128 bytes: 40 fit into 5200 bytes, so 101 rows take 3 pieces of 34, 34 and 33.
TEST(Chain, PiecesAreTheFewestThatFitAndNearlyEqual) {
    const Chain chain = make_chain(config_with(), {5200});
    std::vector<std::pair<std::int64_t, std::int64_t>> rows;
    for (const shard::UnitSpec& unit : chain.units) {
        if (unit.name.rfind("head.", 0) == 0) {
            ASSERT_EQ(unit.parts.size(), 1U);
            rows.emplace_back(unit.parts[0].first_row, unit.parts[0].rows);
            EXPECT_EQ(unit.parts[0].shape, (base::Shape{101, 32}));
            EXPECT_LE(unit.parts[0].elements() * 4, 5200);
        }
    }
    EXPECT_EQ(rows,
              (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 34}, {34, 34}, {68, 33}}));
}

TEST(Chain, EveryRowIsInExactlyOnePieceAndNonePassesTheLimit) {
    for (std::int64_t limit = 1; limit < 101 * 128 + 200; limit += 97) {
        const Chain chain = make_chain(config_with(), {limit});
        std::int64_t next = 0;
        for (const shard::UnitSpec& unit : chain.units) {
            if (unit.name.rfind("embedding.", 0) == 0) {
                EXPECT_EQ(unit.parts[0].first_row, next);
                EXPECT_GT(unit.parts[0].rows, 0);
                EXPECT_LE(unit.parts[0].rows, std::max<std::int64_t>(1, limit / 128));
                next += unit.parts[0].rows;
            }
        }
        EXPECT_EQ(next, 101);
    }
}

TEST(Chain, ARowLongerThanTheLimitIsAPiece) {
    const Chain chain = make_chain(config_with(), {1});
    EXPECT_EQ(chain.units.size(), 101U + 3 + 101);
}

TEST(Chain, ATiedHeadVisitsTheEmbeddingsPiecesInDescendingOrder) {
    const Chain chain = make_chain(config_with({{"tie_word_embeddings", true}}), {5200});
    EXPECT_EQ(chain.units.size(), 6U);
    EXPECT_EQ(
        order_of(chain),
        (std::vector<std::string>{"embedding.0", "embedding.1", "embedding.2", "layer.0", "layer.1",
                                  "layer.2", "embedding.2", "embedding.1", "embedding.0"}));
    EXPECT_EQ(chain.uses[6].role, Role::head);
    EXPECT_EQ(chain.uses[6].index, 2);
    EXPECT_EQ(chain.uses[8].role, Role::head);
}

TEST(Chain, TheFinalNormGoesWithTheLastLayer) {
    const Chain chain = make_chain(config_with(), {0});
    EXPECT_EQ(chain.units[3].parts.back().tensor, "model.norm.weight");
    EXPECT_EQ(chain.units[2].parts.back().tensor, "model.layers.1.mlp.down_proj.weight");
    EXPECT_EQ(chain.units[2].parts.front().tensor, "model.layers.1.input_layernorm.weight");
}

TEST(Chain, UnitsHoldEveryTensorOnceAtAlignedOffsets) {
    const ModelConfig config = config_with({{"attention_bias", true}});
    const Chain chain = make_chain(config, {5200});
    base::Elements held = 0, expected = 0;
    for (const shard::UnitSpec& unit : chain.units) {
        for (const shard::TensorPart& part : unit.parts) {
            EXPECT_EQ(part.offset % shard::alignment, 0);
            EXPECT_LE(part.offset + part.elements(), unit.elements);
            held += part.elements();
        }
    }
    for (const base::TensorSpec& tensor : tensors_of(config)) {
        expected += base::elements_of(tensor.shape);
    }
    EXPECT_EQ(held, expected);
}

// SmolLM2-135M: a layer is 14.2 MB, the tied embedding 113 MB: 8 pieces of 6144 rows.
TEST(Chain, PiecesAreByDefaultAsLargeAsTheLargestLayer) {
    const ModelConfig config = config_with({{"hidden_size", 576},
                                            {"intermediate_size", 1536},
                                            {"vocab_size", 49152},
                                            {"num_hidden_layers", 30},
                                            {"num_attention_heads", 9},
                                            {"num_key_value_heads", 3},
                                            {"head_dim", 64},
                                            {"tie_word_embeddings", true}});
    const Chain chain = make_chain(config, {0});
    ASSERT_EQ(chain.units.size(), 8U + 30);
    EXPECT_EQ(chain.units[0].parts[0].rows, 6144);
    EXPECT_EQ(chain.uses.size(), 8U + 30 + 8);
    // A layer: 2 norms, q and o, k and v, gate, up and down; with the last the final norm, all
    // aligned.
    const base::Elements layer = 2 * 640 + 2 * 576 * 576 + 2 * 192 * 576 + 3 * 1536 * 576;
    EXPECT_EQ(chain.units[8].elements, layer);
    EXPECT_EQ(chain.units[37].elements, layer + 640);
}

// Layers of 51 KB: the embedding of 12.9 KB stays whole, as would anything up to 4 MiB.
TEST(Chain, DefaultPiecesHoldAtLeastFourMebibytes) {
    const Chain chain = make_chain(config_with({{"vocab_size", 32768}}), {0});
    EXPECT_EQ(chain.units.front().parts[0].rows, 32768);
    const Chain longer = make_chain(config_with({{"vocab_size", 32769}}), {0});
    EXPECT_EQ(longer.units.front().parts[0].rows, 16385);
}

} // namespace
} // namespace foregather::model
