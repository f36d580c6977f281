// SPDX-License-Identifier: Apache-2.0
// Opening, comparing, refusing.
#include "inputs.hpp"

#include <foregather/base/error.hpp>

namespace foregather::job {
namespace {

std::string compare_tokenizers(const deck::Deck& deck, const io::WeightsFile& weights,
                               const io::TokenFile& tokens) {
    const std::string& of_weights = weights.tokenizer_sha256();
    const std::string& of_tokens = tokens.tokenizer_sha256();
    if (of_weights.empty() || of_tokens.empty()) {
        return (of_tokens.empty() ? tokens.path() : weights.path()) +
               " does not say which tokenizer it belongs to: that tokens and weights fit is not "
               "checked";
    }
    if (of_weights == of_tokens) {
        return "";
    }
    const std::string differ = tokens.path() + " was made with another tokenizer (sha256 " +
                               of_tokens.substr(0, 12) + "...) than that of " + weights.path() +
                               " (" + of_weights.substr(0, 12) + "...)";
    if (!deck.sections().data.any_tokenizer) {
        base::refuse(differ + "; tokenize again with tools/tokenize --weights " + weights.path() +
                     ", or set data.any_tokenizer = true if you know better");
    }
    return differ + "; accepted, as data.any_tokenizer = true";
}

// What a deck may ask of one model and not of another.
void refuse_beyond_model(const deck::Deck& deck, const model::ModelConfig& config) {
    const deck::Sections& s = deck.sections();
    const auto refuse = [&](const char* key, std::int64_t value, const std::string& most) {
        base::refuse(deck.where(key) + " = " + std::to_string(value) + " is out of range: " + most);
    };
    if (s.data.window > config.positions) {
        refuse("data.window", s.data.window,
               "the model has " + std::to_string(config.positions) + " positions");
    }
    if (s.score.top_k > config.vocabulary) {
        refuse("score.top_k", s.score.top_k,
               "the vocabulary has " + std::to_string(config.vocabulary) + " tokens");
    }
}

} // namespace

Inputs open_inputs(const deck::Deck& deck, bool check_ids) {
    const deck::Sections& s = deck.sections();
    Inputs in;
    in.weights = std::make_unique<io::WeightsFile>(s.model.weights);
    in.tokens = std::make_unique<io::TokenFile>(s.data.tokens);
    in.config = model::parse_config(in.weights->config_json(), in.weights->path());
    std::vector<base::TensorSpec> stored;
    for (const io::StoredTensor& tensor : in.weights->tensors()) {
        stored.push_back({tensor.name, tensor.shape});
    }
    model::check_tensors(in.config, stored, in.weights->path());
    in.notes = in.config.notes;
    const std::string note = compare_tokenizers(deck, *in.weights, *in.tokens);
    if (!note.empty()) {
        in.notes.push_back(note);
    }
    refuse_beyond_model(deck, in.config);
    in.packs = make_packs(*in.tokens, s.batch.tokens, s.data.max_documents, in.config.positions,
                          make_cut(s.data.window, s.data.stride));
    if (in.packs.long_windows > 0) {
        in.notes.push_back(std::to_string(in.packs.long_windows) +
                           (s.data.window > 0 ? " windows" : " documents") +
                           " are longer than batch.tokens = " + std::to_string(s.batch.tokens) +
                           ": each has a pack of its own, the longest " +
                           std::to_string(in.packs.longest) + " tokens");
    }
    if (check_ids) {
        in.tokens->check_ids(in.config.vocabulary);
    }
    in.chain = model::make_chain(in.config, s.fsdp.piece_bytes);
    return in;
}

} // namespace foregather::job
