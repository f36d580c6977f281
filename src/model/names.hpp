// SPDX-License-Identifier: Apache-2.0
// Hugging Face names of the tensors of llama and its kin.
#pragma once

#include <string>
#include <vector>

#include <foregather/model/config.hpp>

namespace foregather::model {

inline constexpr const char* embedding_name = "model.embed_tokens.weight";
inline constexpr const char* final_norm_name = "model.norm.weight";
inline constexpr const char* head_name = "lm_head.weight";

// E.g. layer_tensor(3, "mlp.up_proj.weight").
std::string layer_tensor(int layer, const std::string& name);

// The tensors of one layer in the order of use; with the last comes the final norm.
std::vector<base::TensorSpec> layer_tensors(const ModelConfig& config, int layer);

} // namespace foregather::model
