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

// d1: short waves stay, the second is blended, long ones are stretched by 8.
TEST(Rope, Llama3ScalingStretchesLongWavesOnly) {
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
    json two_types = llama3_rope();
    two_types["type"] = "linear";
    expect_mention(refusal_of(config_text({{"rope_scaling", two_types}})),
                   "rope_type and type disagree (linear, llama3)");
}

TEST(Rope, OtherTypesAndKeysAreRefusedByName) {
    for (const char* type : {"linear", "dynamic", "yarn", "longrope", "su"}) {
        expect_mention(
            refusal_of(config_text({{"rope_scaling", {{"type", type}, {"factor", 2.0}}}})),
            std::string("rope type ") + type + " is not supported");
    }
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
