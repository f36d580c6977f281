// SPDX-License-Identifier: Apache-2.0
// What every job asks of a weights file and a token file before any work: that they are there, that
// they fit each other, the model and the deck. Which files a job has is its own affair.
#pragma once

#include <memory>
#include <string>

#include <foregather/deck/deck.hpp>
#include <foregather/io/token_file.hpp>
#include <foregather/io/weights_file.hpp>
#include <foregather/model/config.hpp>

namespace foregather::job {

// A weights file whose tensors are those of its config.
struct OpenedWeights {
    std::unique_ptr<io::WeightsFile> file;
    model::ModelConfig config;
};
// Throws Error(refused).
OpenedWeights open_weights(const std::string& path);

// What its weights are, for a comparison with another start: a digest, or, without one, its size
// and config, and with_time when it was changed.
std::string content_of(const io::WeightsFile& weights, bool with_time);

// The text of a config.json. Throws Error(refused) where it cannot be read as one.
std::string read_config(const std::string& path);
// Of a model that no file holds: parse_config(), and no more layers than can be listed.
model::ModelConfig config_without_weights(const std::string& json, const std::string& path);

// A file that may say which tokenizer it belongs to.
struct TokenizerOf {
    std::string path, sha256; // "": it does not say
};
// What the user should be told, "" where both name the same. Throws Error(refused) where they name
// two, unless data.any_tokenizer is set.
std::string compare_tokenizers(const deck::Deck& deck, const TokenizerOf& model,
                               const TokenizerOf& tokens);

// Throws Error(refused), with the key's place, for data.window beyond the model's positions.
void refuse_window_beyond(const deck::Deck& deck, const model::ModelConfig& config);
// "data.window = 5000 is out of range: MOST", with its place, as a refusal.
[[noreturn]] void refuse_beyond(const deck::Deck& deck, const char* key, std::int64_t value,
                                const std::string& most);

// "3 documents are longer than batch.tokens = 64: each has a pack of its own, the longest 80
// tokens".
std::string long_note(std::int64_t count, bool windows, base::Elements batch_tokens,
                      base::Elements longest);

} // namespace foregather::job
