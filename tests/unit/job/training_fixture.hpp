// SPDX-License-Identifier: Apache-2.0
// The files of a small training run, and its deck. What is wrong with them is the test's.
#pragma once

#include <algorithm>

#include <foregather/deck/deck.hpp>
#include <foregather/model/config.hpp>

#include "../io/h5_fixture.hpp"

namespace foregather::job {

using io::testing::Directory;
using io::testing::Writer;
using Ints = std::vector<std::int64_t>;

inline const std::string small_config =
    R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "vocab_size": 50,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
        "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
        "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "rope_theta": 10000.0,
        "initializer_range": 0.03})";

inline void write_model(const std::string& path, const std::string& json, bool whole = true) {
    Writer file(path);
    file.attribute("format", std::string("foregather.weights"));
    file.attribute("format_version", std::int64_t{1});
    file.text("config", json);
    auto tensors = model::tensors_of(model::parse_config(json, "config"));
    tensors.resize(tensors.size() - (whole ? 0 : 1));
    for (const base::TensorSpec& tensor : tensors) {
        std::string name = "weights/" + tensor.name;
        std::replace(name.begin() + 8, name.end(), '.', '/');
        const std::vector<hsize_t> shape(tensor.shape.begin(), tensor.shape.end());
        file.put(name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, shape,
                 std::vector<float>(static_cast<std::size_t>(base::elements_of(tensor.shape))));
    }
}

// Documents of these lengths, ids ascending from 0.
inline void write_documents(const std::string& path, const Ints& lengths,
                            const std::string& tokenizer = "") {
    Ints offsets{0}, ids;
    for (const std::int64_t length : lengths) {
        offsets.push_back(offsets.back() + length);
    }
    for (std::int64_t t = 0; t < offsets.back(); ++t) {
        ids.push_back(t);
    }
    Writer file(path);
    file.integers("tokens", H5T_STD_U32LE, ids);
    file.integers("offsets", H5T_STD_I64LE, offsets);
    if (!tokenizer.empty()) {
        file.attribute("tokenizer_sha256", tokenizer);
    }
}

// A folder with c.json, w.h5 and t.h5, and decks of what lies there.
class TrainingFolder {
public:
    TrainingFolder() {
        io::testing::spill(in("c.json"), small_config);
        write_model(in("w.h5"), small_config);
        write_documents(in("t.h5"), {5, 9, 12});
    }
    std::string in(const std::string& name) const { return directory_ / name; }

    // Random weights unless model.weights is among the words, "--section.key=value".
    deck::Deck deck(std::vector<std::string> words = {}) const {
        const bool weights = !words.empty() && words[0].starts_with("--model.weights=");
        words.push_back("--job.name=train");
        const auto add = [&](const std::string& key, const std::string& value) {
            const std::string word = "--" + key + "=";
            for (const std::string& given : words) {
                if (given.starts_with(word)) {
                    return;
                }
            }
            words.push_back(word + value);
        };
        add("output.file", in("r.h5"));
        add("data.tokens", in("t.h5"));
        add("train.steps", "10");
        add("train.learning_rate", "1e-3");
        if (!weights) {
            add("model.config", in("c.json"));
        }
        return deck::Deck::parse("", "train.deck", words);
    }

private:
    Directory directory_;
};

} // namespace foregather::job
