// SPDX-License-Identifier: Apache-2.0
// Names and shapes of the tensors that a config implies, and the check of a file's tensors against
// them. Where they lie is decided by chain.cpp.
#include <foregather/model/config.hpp>

#include <map>

#include <foregather/base/error.hpp>

#include "names.hpp"

namespace foregather::model {
namespace {

constexpr std::size_t most_lines_told = 20;

std::string in_words(const base::Shape& shape) {
    std::string text;
    for (const std::int64_t extent : shape) {
        text += (text.empty() ? "" : ", ") + std::to_string(extent);
    }
    return "[" + text + "]";
}

} // namespace

std::string layer_tensor(int layer, const std::string& name) {
    return "model.layers." + std::to_string(layer) + "." + name;
}

std::vector<base::TensorSpec> layer_tensors(const ModelConfig& config, int layer) {
    const std::int64_t query = std::int64_t{config.heads} * config.head_dim;
    const std::int64_t key = std::int64_t{config.kv_heads} * config.head_dim;
    std::vector<base::TensorSpec> tensors;
    const auto add = [&](const std::string& name, const base::Shape& shape) {
        tensors.push_back({layer_tensor(layer, name), shape});
    };
    const auto add_matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                                bool bias) {
        add(name + ".weight", {rows, columns});
        if (bias) {
            add(name + ".bias", {rows});
        }
    };
    add("input_layernorm.weight", {config.width});
    add_matrix("self_attn.q_proj", query, config.width, config.qkv_bias);
    add_matrix("self_attn.k_proj", key, config.width, config.qkv_bias);
    add_matrix("self_attn.v_proj", key, config.width, config.qkv_bias);
    add_matrix("self_attn.o_proj", config.width, query, config.output_bias);
    if (config.qk_norm) {
        add("self_attn.q_norm.weight", {config.head_dim});
        add("self_attn.k_norm.weight", {config.head_dim});
    }
    add("post_attention_layernorm.weight", {config.width});
    add_matrix("mlp.gate_proj", config.ffn, config.width, config.mlp_bias);
    add_matrix("mlp.up_proj", config.ffn, config.width, config.mlp_bias);
    add_matrix("mlp.down_proj", config.width, config.ffn, config.mlp_bias);
    if (layer == config.layers - 1) {
        tensors.push_back({final_norm_name, {config.width}});
    }
    return tensors;
}

std::vector<base::TensorSpec> tensors_of(const ModelConfig& config) {
    std::vector<base::TensorSpec> tensors = {{embedding_name, {config.vocabulary, config.width}}};
    for (int layer = 0; layer < config.layers; ++layer) {
        for (base::TensorSpec& tensor : layer_tensors(config, layer)) {
            tensors.push_back(std::move(tensor));
        }
    }
    if (!config.tied) {
        tensors.push_back({head_name, {config.vocabulary, config.width}});
    }
    return tensors;
}

void check_tensors(const ModelConfig& config, const std::vector<base::TensorSpec>& stored,
                   const std::string& file) {
    std::map<std::string, base::Shape> found;
    for (const base::TensorSpec& tensor : stored) {
        found[tensor.name] = tensor.shape;
    }
    std::vector<std::string> faults;
    for (const base::TensorSpec& tensor : tensors_of(config)) {
        const auto entry = found.find(tensor.name);
        if (entry == found.end()) {
            faults.push_back("missing: " + tensor.name + " " + in_words(tensor.shape));
            continue;
        }
        if (entry->second != tensor.shape) {
            faults.push_back("misshaped: " + tensor.name + " is " + in_words(entry->second) +
                             ", the config asks for " + in_words(tensor.shape));
        }
        found.erase(entry);
    }
    for (const auto& [name, shape] : found) {
        const bool tied_head = config.tied && name == head_name;
        faults.push_back("unexpected: " + name + " " + in_words(shape) +
                         (tied_head ? " (the config ties the head to the embedding)" : ""));
    }
    if (faults.empty()) {
        return;
    }
    std::string text = file + ": the tensors do not fit the model's config:";
    for (std::size_t i = 0; i < std::min(faults.size(), most_lines_told); ++i) {
        text += "\n  " + faults[i];
    }
    if (faults.size() > most_lines_told) {
        text += "\n  and " + std::to_string(faults.size() - most_lines_told) + " more";
    }
    base::refuse(text + "\n  (make the file again with tools/import_model)");
}

} // namespace foregather::model
