// SPDX-License-Identifier: Apache-2.0
// Judging a config.json by the law that the tools share: every key is used, harmless or refused by
// name. Numbers that the law lets through are checked here against each other.
#include <foregather/model/config.hpp>

#include <algorithm>

#include <foregather/base/error.hpp>

#include "rope.hpp"
#include "windows.hpp"

namespace foregather::model {
namespace {

using Lines = std::vector<std::string>;

// tools/foregather_tools/config_law.json, compiled in.
const char* const config_law =
#include <generated/config_law.inc>
    ;

const char* const counts[] = {"hidden_size",       "intermediate_size",      "vocab_size",
                              "num_hidden_layers", "num_attention_heads",    "num_key_value_heads",
                              "head_dim",          "max_position_embeddings"};
const char* const flags[] = {"attention_bias", "mlp_bias", "tie_word_embeddings",
                             "use_sliding_window"};

std::string joined(const Json& list, const std::string& separator) {
    std::string text;
    for (const Json& entry : list) {
        text += (text.empty() ? "" : separator) + entry.dump();
    }
    return text;
}

// The family on which model_type and architectures agree; one of the two may be absent.
std::string family_of(const Json& config, const Json& law, const std::string& file) {
    const Json type = value_or_null(config, "model_type");
    const Json architectures = value_or_null(config, "architectures");
    std::string known;
    for (const auto& [name, family] : law.at("families").items()) {
        const Json own = Json::array({family.at("architecture")});
        const bool by_type = type == name && (architectures.is_null() || architectures == own);
        if (by_type || (type.is_null() && architectures == own)) {
            return name;
        }
        known += (known.empty() ? "" : ", ") + name + " " + own.dump();
    }
    base::refuse(file + ": model_type " + type.dump() + " with architectures " +
                 architectures.dump() + " is not supported; supported are " + known);
}

// Puts the family's defaults where the config says nothing. Null says nothing too, except where it
// is a value of its own: a null window is no window, null key-value heads are as many as heads.
void fill_defaults(Json& config, const Json& family, const std::string& name, Lines& notes) {
    for (const auto& [key, given] : family.at("defaults").items()) {
        const bool absent = !config.contains(key);
        if (!absent && (!config.at(key).is_null() || key == "sliding_window")) {
            continue;
        }
        const bool like_heads =
            given == "num_attention_heads" || (!absent && key == "num_key_value_heads");
        const Json value = like_heads ? value_or_null(config, "num_attention_heads") : given;
        if (!value.is_null()) {
            config[key] = value;
            notes.push_back(key + " is " + (absent ? "absent" : "null") + ": " + name +
                            "'s default " + value.dump() + " is taken");
        }
    }
}

// Every key is fixed to a value, used, harmless, or a fault.
void judge_keys(const Json& config, const Json& given, const Json& law, const Json& family,
                Lines& faults) {
    Json fixed = law.at("fixed");
    fixed.update(family.at("fixed"));
    for (const auto& [key, value] : config.items()) {
        if (contains(law.at("used"), key) || contains(family.at("used"), key)) {
            continue;
        }
        if (fixed.contains(key)) {
            if (!contains(fixed.at(key), value)) {
                faults.push_back(key + ": " + value.dump() +
                                 (given.contains(key) ? "" : " (the family's default)") +
                                 " is not supported, only " + joined(fixed.at(key), " or "));
            }
        } else if (!contains(law.at("harmless"), key)) {
            faults.push_back(key + ": unknown key, it might change the mathematics");
        }
    }
}

void derive_head_dim(Json& config, Lines& faults, Lines& notes) {
    const Json width = value_or_null(config, "hidden_size");
    const Json heads = value_or_null(config, "num_attention_heads");
    if (!value_or_null(config, "head_dim").is_null() || !is_count(width) || !is_count(heads)) {
        return;
    }
    const auto n = width.get<std::int64_t>(), by = heads.get<std::int64_t>();
    if (n % by != 0) {
        faults.push_back("head_dim: missing, and hidden_size " + width.dump() +
                         " is no multiple of " + heads.dump() + " heads");
        return;
    }
    config["head_dim"] = n / by;
    notes.push_back("head_dim is absent: hidden_size / num_attention_heads = " +
                    std::to_string(n / by) + " is taken");
}

// Numbers and flags are there, of the right kind, and fit each other.
void judge_numbers(const Json& config, const Json& law, Lines& faults) {
    for (const Json& key : law.at("required")) {
        if (value_or_null(config, key).is_null()) {
            faults.push_back(key.get<std::string>() + ": missing, and no default is assumed");
        }
    }
    for (const std::string key : counts) {
        const Json value = value_or_null(config, key);
        if (!value.is_null() && !is_count(value)) {
            faults.push_back(key + ": " + value.dump() +
                             " is not a positive whole number of 32 bits");
        }
    }
    for (const std::string key : flags) {
        if (config.contains(key) && !config.at(key).is_boolean()) {
            faults.push_back(key + ": " + config.at(key).dump() + " is neither true nor false");
        }
    }
    const Json epsilon = value_or_null(config, "rms_norm_eps");
    if (!epsilon.is_null() && (!is_number(epsilon) || epsilon.get<double>() < 0)) {
        faults.push_back("rms_norm_eps: " + epsilon.dump() + " is not a number of zero or more");
    }
    const Json heads = value_or_null(config, "num_attention_heads");
    const Json kv_heads = value_or_null(config, "num_key_value_heads");
    if (is_count(heads) && is_count(kv_heads) &&
        heads.get<std::int64_t>() % kv_heads.get<std::int64_t>() != 0) {
        faults.push_back("num_key_value_heads: " + heads.dump() + " heads are no multiple of " +
                         kv_heads.dump());
    }
    const Json head_dim = value_or_null(config, "head_dim");
    if (is_count(head_dim) && head_dim.get<std::int64_t>() % 2 != 0) {
        faults.push_back("head_dim: " + head_dim.dump() + " is odd, RoPE turns pairs");
    }
}

// A tensor kind of the family: there, not there, or as a flag of the config says.
bool has(const Json& family, const char* kind, const Json& config) {
    const Json& told = family.at("tensors").at(kind);
    return told.is_string() ? config.at(told.get<std::string>()).get<bool>() : told.get<bool>();
}

ModelConfig as_numbers(const Json& config, const Json& family, const std::string& name) {
    ModelConfig c;
    c.family = name;
    c.width = config.at("hidden_size");
    c.ffn = config.at("intermediate_size");
    c.vocabulary = config.at("vocab_size");
    c.positions = config.at("max_position_embeddings");
    c.layers = config.at("num_hidden_layers");
    c.heads = config.at("num_attention_heads");
    c.kv_heads = config.at("num_key_value_heads");
    c.head_dim = config.at("head_dim");
    c.norm_epsilon = static_cast<float>(config.at("rms_norm_eps").get<double>());
    c.tied = config.at("tie_word_embeddings");
    c.qkv_bias = has(family, "qkv_bias", config);
    c.output_bias = has(family, "output_bias", config);
    c.mlp_bias = has(family, "mlp_bias", config);
    c.qk_norm = has(family, "qk_norm", config);
    c.windows = windows_of(config, family.at("windows"));
    return c;
}

} // namespace

ModelConfig parse_config(const std::string& json, const std::string& file) {
    const Json law = Json::parse(config_law);
    const Json given = parse_object(json, file);
    const std::string name = family_of(given, law, file);
    const Json& family = law.at("families").at(name);
    Json config = given;
    Lines faults, notes;
    fill_defaults(config, family, name, notes);
    judge_keys(config, given, law, family, faults);
    derive_head_dim(config, faults, notes);
    judge_numbers(config, law, faults);
    judge_windows(config, family.at("windows"), faults);
    const Rope rope = judge_rope(config, law.at("rope"), faults, notes);
    if (!faults.empty()) {
        std::sort(faults.begin(), faults.end());
        std::string text = file + ": this model's config cannot be computed faithfully:";
        for (const std::string& fault : faults) {
            text += "\n  " + fault;
        }
        base::refuse(text);
    }
    ModelConfig result = as_numbers(config, family, name);
    result.rope = rope;
    result.notes = notes;
    return result;
}

} // namespace foregather::model
