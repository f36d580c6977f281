// SPDX-License-Identifier: Apache-2.0
// Which configs are taken, as what, and what is said against the others.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "configs.hpp"

namespace foregather::model {
namespace {

using nlohmann::json;

void expect_mention(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
}

TEST(Config, ReadsEveryNumber) {
    const ModelConfig c = parse_config(
        config_text({{"attention_bias", true}, {"tie_word_embeddings", true}, {"head_dim", 6}}),
        "tiny.h5");
    EXPECT_EQ(c.family, "llama");
    EXPECT_EQ(c.width, 32);
    EXPECT_EQ(c.ffn, 52);
    EXPECT_EQ(c.vocabulary, 101);
    EXPECT_EQ(c.positions, 128);
    EXPECT_EQ(c.layers, 3);
    EXPECT_EQ(c.heads, 4);
    EXPECT_EQ(c.kv_heads, 2);
    EXPECT_EQ(c.head_dim, 6); // d4: its own number, not 32 / 4
    EXPECT_EQ(c.norm_epsilon, 1e-5F);
    EXPECT_TRUE(c.tied);
    EXPECT_TRUE(c.qkv_bias);
    EXPECT_TRUE(c.output_bias);
    EXPECT_FALSE(c.mlp_bias);
    EXPECT_EQ(c.rope.type, RopeType::plain);
    EXPECT_EQ(c.rope.theta, 10000.0);
    EXPECT_TRUE(c.notes.empty());
}

TEST(Config, TakesDefaultsOfTheFamilyAndSaysSo) {
    const ModelConfig c = parse_config(
        config_text(json::object(), {"head_dim", "num_key_value_heads", "tie_word_embeddings",
                                     "attention_bias", "mlp_bias", "rope_theta", "hidden_act"}),
        "tiny.h5");
    EXPECT_EQ(c.head_dim, 8);
    EXPECT_EQ(c.kv_heads, 4);
    EXPECT_FALSE(c.tied);
    EXPECT_EQ(c.rope.theta, 10000.0);
    std::string notes;
    for (const std::string& note : c.notes) {
        notes += note + "\n";
    }
    for (const char* key : {"head_dim", "num_key_value_heads", "tie_word_embeddings",
                            "attention_bias", "mlp_bias", "rope_theta", "hidden_act"}) {
        expect_mention(notes, std::string(key) + " is absent");
    }
}

TEST(Config, NullHeadDimAndKeyValueHeadsFollowFromTheOthers) {
    const ModelConfig c =
        parse_config(config_text({{"head_dim", nullptr}, {"num_key_value_heads", nullptr}}), "f");
    EXPECT_EQ(c.head_dim, 8);
    EXPECT_EQ(c.kv_heads, 4);
    json mistral = {{"model_type", "mistral"},
                    {"architectures", {"MistralForCausalLM"}},
                    {"sliding_window", nullptr},
                    {"num_key_value_heads", nullptr}};
    EXPECT_EQ(parse_config(config_text(mistral), "f").kv_heads, 4);
}

std::vector<std::int64_t> windows_in(const json& changes) {
    return parse_config(config_text(changes), "f").windows;
}

using Windows = std::vector<std::int64_t>;

TEST(Config, MistralHasItsWindowInEveryLayer) {
    EXPECT_EQ(windows_in(family("mistral", {{"sliding_window", 7}})), (Windows{7, 7, 7}));
    EXPECT_EQ(windows_in(family("mistral", {{"sliding_window", nullptr}})), (Windows{0, 0, 0}));
    // Left out, transformers takes 4096.
    const ModelConfig silent = parse_config(config_text(family("mistral")), "f");
    EXPECT_EQ(silent.windows, (Windows{4096, 4096, 4096}));
    ASSERT_EQ(silent.notes.size(), 1U);
    expect_mention(silent.notes[0], "sliding_window is absent: mistral's default 4096");
    EXPECT_EQ(windows_in(json::object()), (Windows{0, 0, 0})); // llama
}

TEST(Config, QwenHasWindowsByLayer) {
    for (const char* name : {"qwen2", "qwen3"}) {
        const auto windows = [name](json changes) {
            changes.update({{"max_window_layers", changes.value("max_window_layers", 1)}});
            return windows_in(family(name, changes));
        };
        const json used = {{"use_sliding_window", true}, {"sliding_window", 6}};
        EXPECT_EQ(windows(used), (Windows{0, 6, 6}));
        json all = used, none = used, listed = used, full = used, open = used, off = used;
        all["max_window_layers"] = 0;
        EXPECT_EQ(windows(all), (Windows{6, 6, 6}));
        none["max_window_layers"] = 28;
        EXPECT_EQ(windows(none), (Windows{0, 0, 0}));
        listed["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
        EXPECT_EQ(windows(listed), (Windows{6, 0, 6})); // the list wins over max_window_layers
        full["layer_types"] = {"full_attention", "full_attention", "full_attention"};
        EXPECT_EQ(windows(full), (Windows{0, 0, 0}));
        open["sliding_window"] = nullptr;
        EXPECT_EQ(windows(open), (Windows{0, 0, 0}));
        off["use_sliding_window"] = false;
        EXPECT_EQ(windows(off), (Windows{0, 0, 0}));
    }
    // Left out: no window; used without a number: 4096 from layer 28 on.
    EXPECT_EQ(windows_in(family("qwen2")), (Windows{0, 0, 0}));
    const ModelConfig deep = parse_config(
        config_text(family("qwen3", {{"use_sliding_window", true}, {"num_hidden_layers", 30}})),
        "f");
    EXPECT_EQ(deep.windows[27], 0);
    EXPECT_EQ(deep.windows[28], 4096);
}

TEST(Config, FamiliesHaveTheirBiasesAndNorms) {
    const ModelConfig qwen2 = parse_config(config_text(family("qwen2"), {"attention_bias"}), "f");
    EXPECT_TRUE(qwen2.qkv_bias);
    EXPECT_FALSE(qwen2.output_bias || qwen2.mlp_bias || qwen2.qk_norm);
    const ModelConfig qwen3 = parse_config(config_text(family("qwen3")), "f");
    EXPECT_TRUE(qwen3.qk_norm);
    EXPECT_FALSE(qwen3.qkv_bias || qwen3.output_bias || qwen3.mlp_bias);
    const ModelConfig biased =
        parse_config(config_text(family("qwen3", {{"attention_bias", true}})), "f");
    EXPECT_TRUE(biased.qk_norm && biased.qkv_bias && biased.output_bias);
    const ModelConfig mistral = parse_config(config_text(family("mistral")), "f");
    EXPECT_EQ(mistral.family, "mistral");
    EXPECT_FALSE(mistral.qkv_bias || mistral.output_bias || mistral.mlp_bias || mistral.qk_norm);
}

// d4: Qwen3's own default, whatever the width; the others divide.
TEST(Config, D4HeadDimHasTheFamilysDefault) {
    EXPECT_EQ(parse_config(config_text(family("qwen3"), {"head_dim"}), "f").head_dim, 128);
    EXPECT_EQ(parse_config(config_text(family("qwen2"), {"head_dim"}), "f").head_dim, 8);
}

TEST(Config, RefusesFamiliesThatItDoesNotCompute) {
    const json gemma = {{"model_type", "gemma"}, {"architectures", {"GemmaForCausalLM"}}};
    const std::string text = refusal_of(config_text(gemma));
    expect_mention(text, "tiny.h5: model_type \"gemma\"");
    expect_mention(text, "llama [\"LlamaForCausalLM\"], mistral");
    expect_mention(text, "qwen2 [\"Qwen2ForCausalLM\"], qwen3 [\"Qwen3ForCausalLM\"]");
    expect_mention(refusal_of(config_text({{"model_type", "mistral"}})), "LlamaForCausalLM");
    expect_mention(refusal_of(config_text({{"architectures", {"LlamaForSequenceClassification"}}})),
                   "LlamaForSequenceClassification");
    EXPECT_EQ(refusal_of(config_text(json::object(), {"model_type"})), "");
    EXPECT_EQ(refusal_of(config_text(json::object(), {"architectures"})), "");
    expect_mention(refusal_of(config_text(json::object(), {"architectures", "model_type"})),
                   "null");
}

struct Fault {
    const char* name;
    json change;
    const char* said;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class ConfigFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(ConfigFaults, AreRefusedByName) {
    const std::string text = refusal_of(config_text(GetParam().change));
    expect_mention(text, std::string("\n  ") + GetParam().said);
    expect_mention(text, "tiny.h5");
}

INSTANTIATE_TEST_SUITE_P(
    Config, ConfigFaults,
    ::testing::Values(
        Fault{"UnknownKey", {{"logit_scale", 2.0}}, "logit_scale: unknown key"},
        Fault{"OtherActivation", {{"hidden_act", "gelu"}}, "hidden_act: \"gelu\" is not supported"},
        Fault{"Quantized", {{"quantization_config", {{"bits", 4}}}}, "quantization_config: {"},
        Fault{"PartialRotary", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor: 0.5"},
        Fault{"TensorParallelPretraining", {{"pretraining_tp", 2}}, "pretraining_tp: 2"},
        Fault{"TrueIsNotOne", {{"pretraining_tp", true}}, "pretraining_tp: true"},
        Fault{"ZeroIsNotFalse", {{"rope_interleaved", 0}}, "rope_interleaved: 0"},
        Fault{"OddHeadDim", {{"head_dim", 7}}, "head_dim: 7 is odd"},
        Fault{"T12HeadsNotShared", {{"num_key_value_heads", 3}}, "num_key_value_heads: 4 heads"},
        Fault{"WidthNotCutIntoHeads",
              {{"head_dim", nullptr}, {"hidden_size", 30}},
              "head_dim: missing"},
        Fault{"NoLayers", {{"num_hidden_layers", 0}}, "num_hidden_layers: 0 is not"},
        Fault{"NegativeWidth", {{"hidden_size", -32}}, "hidden_size: -32 is not"},
        Fault{"FractionalWidth", {{"intermediate_size", 52.5}}, "intermediate_size: 52.5 is not"},
        Fault{"HugeVocabulary", {{"vocab_size", 5000000000}}, "vocab_size: 5000000000 is not"},
        Fault{"TextForNumber", {{"vocab_size", "101"}}, "vocab_size: \"101\" is not"},
        Fault{"NumberForFlag", {{"tie_word_embeddings", 1}}, "tie_word_embeddings: 1 is neither"},
        Fault{"WindowInLlama", {{"sliding_window", 7}}, "sliding_window: 7 is not supported"},
        Fault{
            "LayerTypesInLlama", {{"layer_types", {"full_attention"}}}, "layer_types: unknown key"},
        Fault{"LayerTypesInMistral", family("mistral", {{"layer_types", {"full_attention"}}}),
              "layer_types: unknown key"},
        Fault{"BiasInMistral", family("mistral", {{"attention_bias", true}}),
              "attention_bias: true is not supported"},
        Fault{"SwitchInMistral", family("mistral", {{"use_sliding_window", false}}),
              "use_sliding_window: false is not supported"},
        Fault{"WindowOfZero", family("mistral", {{"sliding_window", 0}}),
              "sliding_window: 0 is neither null nor"},
        Fault{"NoBiasInQwen2", family("qwen2", {{"attention_bias", false}}),
              "attention_bias: false is not supported, only true"},
        Fault{"MlpBiasInQwen3", family("qwen3", {{"mlp_bias", true}}),
              "mlp_bias: true is not supported"},
        Fault{"NumberForSwitch", family("qwen2", {{"use_sliding_window", 1}}),
              "use_sliding_window: 1 is neither"},
        Fault{"MropeInQwen2", family("qwen2", {{"use_mrope", true}}),
              "use_mrope: true is not supported"},
        Fault{"NegativeFirstLayer", family("qwen2", {{"max_window_layers", -1}}),
              "max_window_layers: -1 is not"},
        Fault{"OtherLayerTypes",
              family("qwen3",
                     {{"layer_types", {"full_attention", "chunked_attention", "full_attention"}}}),
              "layer_types: [\"full_attention\",\"chunked_attention\",\"full_attention\"] is no"},
        Fault{"TooFewLayerTypes", family("qwen2", {{"layer_types", {"full_attention"}}}),
              "layer_types: 1 entries, num_hidden_layers is 3"},
        Fault{"WindowedLayersWithoutAWindow",
              family("qwen2",
                     {{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}}),
              "layer_types: names sliding_attention, but there is no window"},
        Fault{"NegativeEpsilon", {{"rms_norm_eps", -1e-5}}, "rms_norm_eps: -1e-05 is not"},
        Fault{"TrueForEpsilon", {{"rms_norm_eps", true}}, "rms_norm_eps: true is not"},
        Fault{"NullEpsilon", {{"rms_norm_eps", nullptr}}, "rms_norm_eps: missing"}),
    [](const auto& fault) { return fault.param.name; });

class MissingKeys : public ::testing::TestWithParam<const char*> {};

TEST_P(MissingKeys, AreRefusedByName) {
    expect_mention(refusal_of(config_text(json::object(), {GetParam()})),
                   std::string("\n  ") + GetParam() + ": missing");
}

INSTANTIATE_TEST_SUITE_P(Config, MissingKeys,
                         ::testing::Values("hidden_size", "intermediate_size", "vocab_size",
                                           "num_hidden_layers", "num_attention_heads",
                                           "max_position_embeddings", "rms_norm_eps"));

TEST(Config, TellsAllFaultsAtOnce) {
    const std::string text = refusal_of(
        config_text({{"hidden_act", "relu"}, {"mystery", 1}, {"head_dim", 5}}, {"vocab_size"}));
    for (const char* part : {"hidden_act", "mystery", "head_dim: 5", "vocab_size: missing"}) {
        expect_mention(text, part);
    }
}

TEST(Config, RefusesWhatIsNoJsonObject) {
    expect_mention(refusal_of("{\"hidden_size\": "), "tiny.h5: the model's config is not JSON");
    expect_mention(refusal_of("{\"rms_norm_eps\": NaN}"), "not JSON");
    expect_mention(refusal_of("{\"rms_norm_eps\": 1e999}"), "not JSON");
    expect_mention(refusal_of("[1]"), "no JSON object");
    expect_mention(refusal_of(""), "not JSON");
}

TEST(Config, RefusesAKeyThatStandsTwice) {
    std::string text = config_text();
    text.insert(1, "\"rms_norm_eps\": 1e-6, ");
    expect_mention(refusal_of(text), "rms_norm_eps stands twice");
    // The same name in two objects is no repetition.
    EXPECT_EQ(refusal_of(config_text(
                  {{"rope_parameters", {{"rope_theta", 10000.0}, {"rope_type", "default"}}}})),
              "");
}

} // namespace
} // namespace foregather::model
