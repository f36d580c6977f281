// SPDX-License-Identifier: Apache-2.0
// RoPE: frequencies by hand, both spellings of the settings, and tables.
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "configs.hpp"

namespace foregather::model {
namespace {

using nlohmann::json;

void expect_mention(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
}

Rope rope_of(const json& changes, const std::vector<std::string>& absent = {}) {
    return parse_config(config_text(changes, absent), "f").rope;
}

TEST(Rope, FrequenciesOfTheDefaultTypeFallByPowersOfTheBase) {
    const std::vector<float> f = rope_frequencies({}, 8);
    ASSERT_EQ(f.size(), 4U);
    EXPECT_FLOAT_EQ(f[0], 1.0F);
    EXPECT_FLOAT_EQ(f[1], 0.1F);
    EXPECT_FLOAT_EQ(f[2], 0.01F);
    EXPECT_FLOAT_EQ(f[3], 0.001F);
}

// Short waves stay, the second is blended, long ones are stretched by 8.
TEST(Rope, D1Llama3ScalingStretchesLongWavesOnly) {
    Rope rope;
    rope.type = RopeType::llama3;
    rope.factor = 8;
    rope.low_freq_factor = 1;
    rope.high_freq_factor = 4;
    rope.original_positions = 64;
    const std::vector<float> f = rope_frequencies(rope, 8);
    ASSERT_EQ(f.size(), 4U);
    EXPECT_FLOAT_EQ(f[0], 1.0F);
    EXPECT_NEAR(f[1], 0.013042256F, 1e-8F);
    EXPECT_FLOAT_EQ(f[2], 0.00125F);
    EXPECT_FLOAT_EQ(f[3], 0.000125F);
}

json yarn(const json& changes = json::object()) {
    json block = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
    block.update(changes);
    return block;
}

// What transformers' ROPE_INIT_FUNCTIONS give for a block: theta 10000, 256 positions.
struct Known {
    const char* name;
    int head_dim;
    json block;
    std::vector<float> frequencies;
    double attention_factor;
};

void PrintTo(const Known& known, std::ostream* out) { *out << known.name; }

class KnownRopes : public ::testing::TestWithParam<Known> {};

TEST_P(KnownRopes, GiveTheFrequenciesOfTransformers) {
    const Known& known = GetParam();
    const Rope rope = rope_of({{"rope_scaling", known.block}, {"max_position_embeddings", 256}});
    const std::vector<float> f = rope_frequencies(rope, known.head_dim);
    ASSERT_EQ(f.size(), known.frequencies.size());
    for (std::size_t j = 0; j < f.size(); ++j) {
        EXPECT_NEAR(f[j] / known.frequencies[j], 1.0F, 3e-7F) << j;
    }
    EXPECT_NEAR(rope.attention_factor, known.attention_factor, 1e-11);
}

INSTANTIATE_TEST_SUITE_P(
    Rope, KnownRopes,
    ::testing::Values(
        Known{"Linear",
              8,
              {{"rope_type", "linear"}, {"factor", 4.0}},
              {0.25F, 0.0250000004F, 0.00249999994F, 0.000250000012F},
              1.0},
        Known{"Yarn",
              16,
              yarn(),
              {1.0F, 0.237170815F, 0.049999997F, 0.00790569466F, 0.00249999994F, 0.000790569466F,
               0.000250000012F, 7.90569466e-05F},
              1.13862943611},
        Known{"YarnNotTruncated",
              16,
              yarn({{"attention_factor", 0.7},
                    {"beta_fast", 3.0},
                    {"beta_slow", 0.5},
                    {"truncate", false}}),
              {1.0F, 0.316227764F, 0.0547850281F, 0.00790569466F, 0.00249999994F, 0.000790569466F,
               0.000250000012F, 7.90569466e-05F},
              0.7},
        Known{"YarnTruncated",
              16,
              yarn({{"beta_fast", 3.0}, {"beta_slow", 0.5}, {"truncate", true}}),
              {1.0F, 0.316227764F, 0.0625F, 0.00790569466F, 0.00249999994F, 0.000790569466F,
               0.000250000012F, 7.90569466e-05F},
              1.13862943611},
        Known{"YarnWithBothMscales",
              16,
              yarn({{"mscale", 3.0}, {"mscale_all_dim", 0.5}, {"attention_factor", nullptr}}),
              {1.0F, 0.237170815F, 0.049999997F, 0.00790569466F, 0.00249999994F, 0.000790569466F,
               0.000250000012F, 7.90569466e-05F},
              1.32410812685},
        Known{"YarnWithOneMscale",
              16,
              yarn({{"mscale", 3.0}, {"beta_fast", nullptr}}),
              {1.0F, 0.237170815F, 0.049999997F, 0.00790569466F, 0.00249999994F, 0.000790569466F,
               0.000250000012F, 7.90569466e-05F},
              1.13862943611},
        Known{"YarnOverAllPositions",
              16,
              {{"rope_type", "yarn"}, {"factor", 4.0}},
              {1.0F, 0.25693506F, 0.0625F, 0.0138349654F, 0.00249999994F, 0.000790569466F,
               0.000250000012F, 7.90569466e-05F},
              1.13862943611},
        Known{"YarnWithoutARamp",
              8,
              yarn({{"factor", 2.0}, {"original_max_position_embeddings", 6}}),
              {1.0F, 0.0500000007F, 0.00499999989F, 0.000500000024F},
              1.06931471806}),
    [](const auto& known) { return known.param.name; });

TEST(Rope, TheAttentionFactorMultipliesCosinesAndSines) {
    const Rope scaled = rope_of({{"rope_scaling", yarn({{"attention_factor", 0.75}})}});
    Rope plain = scaled;
    plain.attention_factor = 1.0;
    const RopeTables with = rope_tables(scaled, 16, 5), without = rope_tables(plain, 16, 5);
    for (std::size_t i = 0; i < with.cosines.size(); ++i) {
        EXPECT_EQ(with.cosines[i], 0.75F * without.cosines[i]);
        EXPECT_EQ(with.sines[i], 0.75F * without.sines[i]);
    }
    EXPECT_EQ(with.cosines[0], 0.75F);
}

TEST(Rope, PositionsThatStandForTheOriginalOnesAreTold) {
    const ModelConfig config = parse_config(
        config_text({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}), "f");
    EXPECT_EQ(config.rope.original_positions, 128.0);
    ASSERT_EQ(config.notes.size(), 1U);
    expect_mention(config.notes[0], "rope_scaling.original_max_position_embeddings is absent: "
                                    "max_position_embeddings, 128, is taken");
}

TEST(Rope, TablesHoldCosineAndSineOfPositionTimesFrequency) {
    const RopeTables tables = rope_tables({}, 4, 300);
    ASSERT_EQ(tables.cosines.size(), 600U);
    ASSERT_EQ(tables.sines.size(), 600U);
    EXPECT_EQ(tables.cosines[0], 1.0F);
    EXPECT_EQ(tables.sines[1], 0.0F);
    EXPECT_FLOAT_EQ(tables.cosines[2 * 299], static_cast<float>(std::cos(299.0)));
    EXPECT_FLOAT_EQ(tables.sines[2 * 299 + 1], static_cast<float>(std::sin(2.99)));
}

TEST(Rope, AllSpellingsComeToTheSame) {
    json with_base = llama3_rope();
    with_base["rope_theta"] = 500000.0;
    json old_word = llama3_rope();
    old_word["type"] = old_word["rope_type"];
    old_word.erase("rope_type");
    for (const Rope& rope : {rope_of({{"rope_theta", 500000.0}, {"rope_scaling", llama3_rope()}}),
                             rope_of({{"rope_theta", 500000.0}, {"rope_scaling", old_word}}),
                             rope_of({{"rope_parameters", with_base}}, {"rope_theta"}),
                             rope_of({{"rope_theta", 500000.0},
                                      {"rope_parameters", with_base},
                                      {"rope_scaling", llama3_rope()}})}) {
        EXPECT_EQ(rope.type, RopeType::llama3);
        EXPECT_EQ(rope.theta, 500000.0);
        EXPECT_EQ(rope.factor, 8.0);
        EXPECT_EQ(rope.low_freq_factor, 1.0);
        EXPECT_EQ(rope.high_freq_factor, 4.0);
        EXPECT_EQ(rope.original_positions, 64.0);
    }
    const Rope plain = rope_of({{"rope_scaling", nullptr}, {"rope_parameters", nullptr}});
    EXPECT_EQ(plain.type, RopeType::plain);
}

TEST(Rope, SpellingsThatDisagreeAreRefused) {
    json other_base = llama3_rope();
    other_base["rope_theta"] = 500000.0; // beside 10000 at the top
    expect_mention(refusal_of(config_text({{"rope_parameters", other_base}})),
                   "disagree: rope_theta 10000.0, rope_parameters.rope_theta 500000.0");
    json other_factor = llama3_rope();
    other_factor["factor"] = 4.0;
    expect_mention(refusal_of(config_text(
                       {{"rope_parameters", other_factor}, {"rope_scaling", llama3_rope()}})),
                   "the two spellings of the RoPE settings disagree");
    expect_mention(
        refusal_of(config_text({{"rope_scaling", nullptr}, {"rope_parameters", llama3_rope()}})),
        "the two spellings of the RoPE settings disagree");
    const std::string text =
        refusal_of(config_text({{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}}},
                                {"rope_scaling", yarn()}}));
    expect_mention(text, "disagree: rope_scaling {\"factor\":4.0,");
    expect_mention(text, "rope_parameters {\"factor\":2.0,\"rope_type\":\"linear\"}");
    // What a default says is not said in another way.
    EXPECT_EQ(
        refusal_of(config_text({{"rope_parameters", yarn({{"beta_fast", 32}, {"mscale", nullptr}})},
                                {"rope_scaling", yarn({{"truncate", true}})}})),
        "");
    json two_types = llama3_rope();
    two_types["type"] = "linear";
    expect_mention(refusal_of(config_text({{"rope_scaling", two_types}})),
                   "rope_type and type disagree (linear, llama3)");
}

TEST(Rope, OtherTypesAndKeysAreRefusedByName) {
    for (const char* type : {"dynamic", "longrope", "su", "mrope", "proportional"}) {
        expect_mention(
            refusal_of(config_text({{"rope_scaling", {{"type", type}, {"factor", 2.0}}}})),
            std::string("rope type ") + type + " is not supported (");
    }
    expect_mention(
        refusal_of(config_text({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}})),
        "the base would change with the length of a document");
    expect_mention(refusal_of(config_text({{"rope_scaling", yarn({{"low_freq_factor", 1}})}})),
                   "rope_scaling.low_freq_factor: unknown to rope type yarn");
    json extra = llama3_rope();
    extra["attention_factor"] = 1.0;
    expect_mention(refusal_of(config_text({{"rope_scaling", extra}})),
                   "rope_scaling.attention_factor: unknown to rope type llama3");
    expect_mention(refusal_of(config_text({{"rope_scaling", {{"factor", 2.0}}}})),
                   "rope_scaling: no rope_type is given");
    expect_mention(
        refusal_of(config_text({{"rope_parameters", {{"full_attention", llama3_rope()}}}})),
        "rope_parameters: no rope_type is given");
    expect_mention(refusal_of(config_text({{"rope_scaling", "llama3"}})), "is no object");
}

TEST(Rope, MissingAndImpossibleNumbersAreRefusedByName) {
    for (const char* key :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
        json without = llama3_rope();
        without.erase(key);
        expect_mention(refusal_of(config_text({{"rope_scaling", without}})),
                       std::string("rope_scaling.") + key + ": missing");
        json zero = llama3_rope();
        zero[key] = 0;
        expect_mention(refusal_of(config_text({{"rope_scaling", zero}})),
                       std::string("rope_scaling.") + key + ": 0 is not a number above zero");
    }
    for (const char* key : {"factor", "original_max_position_embeddings", "attention_factor",
                            "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
        expect_mention(refusal_of(config_text({{"rope_scaling", yarn({{key, 0}})}})),
                       std::string("rope_scaling.") + key + ": 0 is not a number above zero");
    }
    for (const char* key : {"factor", "original_max_position_embeddings"}) {
        expect_mention(refusal_of(config_text({{"rope_scaling", yarn({{key, nullptr}})}})),
                       std::string("rope_scaling.") + key + ": null is not a number above zero");
    }
    expect_mention(refusal_of(config_text({{"rope_scaling", yarn({{"truncate", 1}})}})),
                   "rope_scaling.truncate: 1 is neither true nor false");
    expect_mention(refusal_of(config_text({{"rope_scaling", yarn({{"beta_fast", 0.5}})}})),
                   "rope_scaling: beta_slow 1 is not below beta_fast 0.5");
    expect_mention(refusal_of(config_text({{"rope_scaling", yarn()}, {"rope_theta", 1.0}})),
                   "is not above one, and rope type yarn needs that");
    expect_mention(refusal_of(config_text({{"rope_scaling", {{"rope_type", "linear"}}}})),
                   "rope_scaling.factor: missing, and rope type linear needs it");
    json crossed = llama3_rope();
    crossed["low_freq_factor"] = 4.0;
    expect_mention(refusal_of(config_text({{"rope_scaling", crossed}})), "is not below");
    expect_mention(refusal_of(config_text({{"rope_theta", 0}})), "rope_theta: 0 is not");
    expect_mention(refusal_of(config_text({{"rope_theta", true}})), "rope_theta: true is not");
    json half = llama3_rope();
    half["partial_rotary_factor"] = 0.5;
    expect_mention(refusal_of(config_text({{"rope_scaling", half}})),
                   "rope_scaling.partial_rotary_factor: 0.5 is not supported");
}

} // namespace
} // namespace foregather::model
