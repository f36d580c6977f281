// SPDX-License-Identifier: Apache-2.0
// Configs for tests: a sound one, changed key by key.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <foregather/base/error.hpp>
#include <foregather/model/config.hpp>

namespace foregather::model {

// A llama config as Hugging Face writes it; `changes` replace keys, `absent` ones are taken out.
inline std::string config_text(const nlohmann::json& changes = nlohmann::json::object(),
                               const std::vector<std::string>& absent = {}) {
    nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                             {"model_type", "llama"},
                             {"hidden_size", 32},
                             {"intermediate_size", 52},
                             {"vocab_size", 101},
                             {"num_hidden_layers", 3},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"head_dim", 8},
                             {"max_position_embeddings", 128},
                             {"rms_norm_eps", 1e-5},
                             {"rope_theta", 10000.0},
                             {"attention_bias", false},
                             {"mlp_bias", false},
                             {"hidden_act", "silu"},
                             {"tie_word_embeddings", false},
                             {"torch_dtype", "float32"},
                             {"use_cache", true}};
    for (const std::string& key : absent) {
        config.erase(key);
    }
    for (const auto& [key, value] : changes.items()) {
        config[key] = value;
    }
    return config.dump();
}

// The changes that make config_text() one of another family, without keys that it lacks.
inline nlohmann::json family(const std::string& name,
                             const nlohmann::json& changes = nlohmann::json::object()) {
    const std::map<std::string, std::string> architectures = {{"mistral", "MistralForCausalLM"},
                                                              {"qwen2", "Qwen2ForCausalLM"},
                                                              {"qwen3", "Qwen3ForCausalLM"}};
    nlohmann::json all = {{"model_type", name}, {"architectures", {architectures.at(name)}}};
    if (name == "qwen2") {
        all["attention_bias"] = true; // the only value that says what Qwen2 is
    }
    all.update(changes);
    return all;
}

// What parse_config says against a config; "" if it takes it.
inline std::string refusal_of(const std::string& text) {
    try {
        parse_config(text, "tiny.h5");
    } catch (const base::Error& error) {
        return error.status() == base::Status::refused ? error.what() : "failed instead of refused";
    }
    return "";
}

inline nlohmann::json llama3_rope() {
    return {{"rope_type", "llama3"},
            {"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 64}};
}

} // namespace foregather::model
