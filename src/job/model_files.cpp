// SPDX-License-Identifier: Apache-2.0
// Opening, comparing, refusing.
#include "model_files.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <foregather/base/error.hpp>
#include <foregather/io/digest.hpp>

namespace foregather::job {
namespace {

constexpr int most_layers = 10000;                     // of a model that no file holds yet
constexpr std::uintmax_t most_config_bytes = 16 << 20; // a config has some thousand

} // namespace

std::string read_config(const std::string& path) {
    std::error_code none;
    std::ifstream file(path, std::ios::binary);
    const bool usable = file && std::filesystem::is_regular_file(path, none) &&
                        std::filesystem::file_size(path, none) <= most_config_bytes;
    std::string text =
        usable ? std::string(std::istreambuf_iterator<char>(file), {}) : std::string();
    if (!usable || !file) {
        base::refuse(path + " cannot be read as a config.json; is it a file, and the path right?");
    }
    return text;
}

model::ModelConfig config_without_weights(const std::string& json, const std::string& path) {
    model::ModelConfig config = model::parse_config(json, path);
    if (config.layers > most_layers) { // before anything is listed layer by layer
        base::refuse(path + " asks for " + std::to_string(config.layers) +
                     " layers (num_hidden_layers); at most " + std::to_string(most_layers) +
                     " are taken");
    }
    return config;
}

OpenedWeights open_weights(const std::string& path) {
    OpenedWeights opened;
    opened.file = std::make_unique<io::WeightsFile>(path);
    opened.config = model::parse_config(opened.file->config_json(), path);
    std::vector<base::TensorSpec> stored;
    for (const io::StoredTensor& tensor : opened.file->tensors()) {
        stored.push_back({tensor.name, tensor.shape});
    }
    model::check_tensors(opened.config, stored, path);
    return opened;
}

std::string content_of(const io::WeightsFile& weights, bool with_time) {
    if (!weights.content_sha256().empty()) {
        return "sha256 " + weights.content_sha256();
    }
    struct stat facts {};
    const bool there = ::stat(weights.path().c_str(), &facts) == 0;
    const std::string time = std::to_string(there ? facts.st_mtime : 0);
    return std::to_string(weights.file_bytes()) + " bytes, " +
           (with_time ? "changed at " + time + " s, " : "") + "config " +
           io::sha256_of_text(weights.config_json());
}

std::string compare_tokenizers(const deck::Deck& deck, const TokenizerOf& model,
                               const TokenizerOf& tokens) {
    if (model.sha256.empty() || tokens.sha256.empty()) {
        return (tokens.sha256.empty() ? tokens.path : model.path) +
               " does not say which tokenizer it belongs to: that it fits " +
               (tokens.sha256.empty() ? model.path : tokens.path) + " is not checked";
    }
    if (model.sha256 == tokens.sha256) {
        return "";
    }
    const std::string differ = tokens.path + " was made with another tokenizer (sha256 " +
                               tokens.sha256.substr(0, 12) + "...) than that of " + model.path +
                               " (" + model.sha256.substr(0, 12) + "...)";
    if (!deck.sections().data.any_tokenizer) {
        base::refuse(differ + "; tokenize again with the tokenizer of " + model.path +
                     " (tools/tokenize), or set data.any_tokenizer = true if you know better");
    }
    return differ + "; accepted, as data.any_tokenizer = true";
}

void refuse_beyond(const deck::Deck& deck, const char* key, std::int64_t value,
                   const std::string& most) {
    base::refuse(deck.where(key) + " = " + std::to_string(value) + " is out of range: " + most);
}

void refuse_window_beyond(const deck::Deck& deck, const model::ModelConfig& config) {
    const std::int64_t window = deck.sections().data.window;
    if (window > config.positions) {
        refuse_beyond(deck, "data.window", window,
                      "the model has " + std::to_string(config.positions) + " positions");
    }
}

std::string long_note(std::int64_t count, bool windows, base::Elements batch_tokens,
                      base::Elements longest) {
    return std::to_string(count) + (windows ? " windows" : " documents") +
           " are longer than batch.tokens = " + std::to_string(batch_tokens) +
           ": each has a pack of its own, the longest " + std::to_string(longest) + " tokens";
}

} // namespace foregather::job
