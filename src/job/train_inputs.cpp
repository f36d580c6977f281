// SPDX-License-Identifier: Apache-2.0
// Opening, comparing, refusing, for training.
#include "train_inputs.hpp"

#include <algorithm>

#include <foregather/base/error.hpp>
#include <foregather/io/digest.hpp>

#include "model_files.hpp"

namespace foregather::job {
namespace {

// What is wrong with the file of a key, told with the key's place.
template <class Work>
void named(const deck::Deck& deck, const char* key, const Work& work) {
    try {
        work();
    } catch (const base::Error& error) {
        throw base::Error(error.status(), deck.where(key) + ": " + error.what());
    }
}

void open_model(const deck::Deck& deck, TrainInputs& in) {
    const deck::ModelSection& model = deck.sections().model;
    if (model.weights.empty()) {
        in.config_path = model.config;
        named(deck, "model.config", [&] {
            in.config_json = read_config(in.config_path);
            in.config = config_without_weights(in.config_json, in.config_path);
        });
    } else {
        OpenedWeights opened = open_weights(model.weights);
        in.weights = std::move(opened.file);
        in.config = std::move(opened.config);
        in.config_path = in.weights->path();
        in.config_json = in.weights->config_json();
    }
    in.training = model::parse_training_config(in.config_json, in.config_path);
    in.notes = in.config.notes;
    if (!in.weights) {
        in.notes.insert(in.notes.end(), in.training.notes.begin(), in.training.notes.end());
    }
}

// Tokens of training are compared with the weights, those of evaluation with what is known by then.
void compare_all(const deck::Deck& deck, TrainInputs& in) {
    TokenizerOf known{in.config_path, in.weights ? in.weights->tokenizer_sha256() : ""};
    for (const io::TokenFile* tokens : {in.tokens.get(), in.evaluation.get()}) {
        if (tokens == nullptr) {
            continue;
        }
        const TokenizerOf own{tokens->path(), tokens->tokenizer_sha256()};
        if (!in.weights && known.sha256.empty()) {
            known = own; // a config names none: the model will be that of its tokens
            continue;
        }
        const std::string note = compare_tokenizers(deck, known, own);
        if (!note.empty() && std::count(in.notes.begin(), in.notes.end(), note) == 0) {
            in.notes.push_back(note);
        }
        if (known.sha256.empty()) {
            known.sha256 = own.sha256;
        }
    }
    in.tokenizer_sha256 = known.sha256;
}

Items list_items(const deck::Deck& deck, const io::TokenFile& tokens, std::int64_t max_documents,
                 TrainInputs& in) {
    const deck::Sections& s = deck.sections();
    Items items = make_items(tokens, s.data.window, max_documents, in.config.positions);
    const bool windows = s.data.window > 0;
    const auto longer = std::count_if(items.items.begin(), items.items.end(),
                                      [&](const Item& i) { return i.tokens > s.batch.tokens; });
    if (longer > 0) {
        in.notes.push_back(tokens.path() + ": " +
                           long_note(longer, windows, s.batch.tokens, items.longest));
    }
    if (items.without_targets > 0) {
        in.notes.push_back(tokens.path() + ": " + std::to_string(items.without_targets) +
                           (windows ? " windows" : " documents") +
                           " have no token to learn, and are left out");
    }
    return items;
}

void note_small_epoch(const deck::Deck& deck, TrainInputs& in) {
    const std::int64_t wanted = deck.sections().train.batch_documents;
    const std::int64_t there = std::ssize(in.items.items);
    if (wanted > there) {
        in.notes.push_back("train.batch_documents = " + std::to_string(wanted) +
                           ", but an epoch has only " + std::to_string(there) +
                           ": each optimizer step takes all of them");
    }
    const deck::TrainSection& train = deck.sections().train;
    if (train.warmup_steps >= train.steps) {
        in.notes.push_back("train.warmup_steps = " + std::to_string(train.warmup_steps) +
                           " is not less than train.steps = " + std::to_string(train.steps) +
                           ": the learning rate does not get beyond its warm-up");
    }
}

} // namespace

TrainInputs open_train_inputs(const deck::Deck& deck, bool check_files) {
    const deck::Sections& s = deck.sections();
    TrainInputs in;
    open_model(deck, in);
    in.tokens = std::make_unique<io::TokenFile>(s.data.tokens);
    if (!s.train.evaluate.empty()) {
        named(deck, "train.evaluate",
              [&] { in.evaluation = std::make_unique<io::TokenFile>(s.train.evaluate); });
    }
    compare_all(deck, in);
    refuse_window_beyond(deck, in.config);
    in.items = list_items(deck, *in.tokens, s.data.max_documents, in);
    note_small_epoch(deck, in);
    if (in.evaluation) {
        named(deck, "train.evaluate",
              [&] { in.evaluation_items = list_items(deck, *in.evaluation, 0, in); });
    }
    if (check_files) {
        in.tokens->check_ids(in.config.vocabulary);
        if (in.evaluation) {
            named(deck, "train.evaluate", [&] { in.evaluation->check_ids(in.config.vocabulary); });
        }
        in.tokens_sha256 = io::sha256_of_file(in.tokens->path());
    }
    in.chain = model::make_chain(in.config, s.fsdp.piece_bytes);
    return in;
}

} // namespace foregather::job
