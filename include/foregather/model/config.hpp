// SPDX-License-Identifier: Apache-2.0
// The checkpoint's config.json as numbers, and the tensors that it implies. Whatever would change
// the mathematics and is not implemented is refused by name; nothing is ignored.
#pragma once

#include <string>
#include <vector>

#include <foregather/base/types.hpp>

namespace foregather::model {

enum class RopeType { plain, linear, llama3, yarn };

// inv_freq[j] = theta^(-2j/D); linear divides all of them by `factor`, llama3 and yarn the slow
// ones, each with a ramp of its own (config key rope_type).
struct Rope {
    RopeType type = RopeType::plain;
    double theta = 10000.0;
    double factor = 1.0;
    double low_freq_factor = 1.0;    // llama3
    double high_freq_factor = 4.0;   // llama3
    double original_positions = 0.0; // llama3, yarn
    double beta_fast = 32.0;         // yarn: turns over the original positions where its ramp
    double beta_slow = 1.0;          // begins and ends
    bool truncate = true;            // yarn: the ramp's ends are whole dimensions
    double attention_factor = 1.0;   // yarn: multiplies cosines and sines
};

struct ModelConfig {
    std::string family;          // model_type: "llama", "mistral", "qwen2", "qwen3"
    std::int64_t width = 0;      // C
    std::int64_t ffn = 0;        // F
    std::int64_t vocabulary = 0; // V
    std::int64_t positions = 0;  // max_position_embeddings
    int layers = 0;              // L
    int heads = 0;               // H
    int kv_heads = 0;            // K
    int head_dim = 0;            // D, its own number: H x D need not be C
    float norm_epsilon = 0;
    bool tied = false;
    bool qkv_bias = false;    // of q, k and v
    bool output_bias = false; // of o
    bool mlp_bias = false;
    bool qk_norm = false;              // each head of q and k is normed before RoPE
    std::vector<std::int64_t> windows; // [L] keys that a query sees, itself included; 0: all
    Rope rope;
    std::vector<std::string>
        notes; // defaults of the family that the config left open, one line each
};

// Reads the text of config.json. Throws Error(refused) naming every key that is missing, wrong, or
// would change the mathematics, all at once; `file` names where the text came from.
ModelConfig parse_config(const std::string& json, const std::string& file);

// What training alone asks of a config.
struct TrainingConfig {
    double initializer_range = 0.02; // standard deviation of random matrices
    std::vector<std::string> notes;  // a default that was taken, in words
};
// Of a config that parse_config() takes. Throws Error(refused) for what scoring may pass over and
// training may not: dropout, and an initializer_range that is no number above 0.
TrainingConfig parse_training_config(const std::string& json, const std::string& file);

// The tensors that the model reads, under their Hugging Face names, in the order of use. A tied
// model has no "lm_head.weight".
std::vector<base::TensorSpec> tensors_of(const ModelConfig& config);

// Throws Error(refused) unless `stored`, in any order, are exactly tensors_of(config): what is
// missing, unexpected (a stored head beside a tied one too) or misshaped is listed at once, 20
// lines at most.
void check_tensors(const ModelConfig& config, const std::vector<base::TensorSpec>& stored,
                   const std::string& file);

// Tables of RoPE for positions [0, positions), [positions, D/2] each, angles in fp32 as the
// reference implementation rounds them; the attention factor is in them.
struct RopeTables {
    std::vector<float> cosines;
    std::vector<float> sines;
};
std::vector<float> rope_frequencies(const Rope& rope, int head_dim); // [D/2]
RopeTables rope_tables(const Rope& rope, int head_dim, std::int64_t positions);

} // namespace foregather::model
