// SPDX-License-Identifier: Apache-2.0
// The files and decisions of a training run, made before any work: whatever can be refused is
// refused here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <foregather/deck/deck.hpp>
#include <foregather/io/token_file.hpp>
#include <foregather/io/weights_file.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/model/config.hpp>

#include "data_order.hpp"

namespace foregather::job {

struct TrainInputs {
    std::unique_ptr<io::WeightsFile> weights; // null: random ones, of the model in `config`
    std::unique_ptr<io::TokenFile> tokens, evaluation; // evaluation: null without train.evaluate
    model::ModelConfig config;
    model::TrainingConfig training; // for random weights
    std::string config_json, config_path;
    std::string tokenizer_sha256; // that model and tokens belong to; "": unknown
    model::Chain chain;
    Items items, evaluation_items;
    std::string tokens_sha256;      // of the file; "" without check_files
    std::vector<std::string> notes; // what the user should be told
};

// Opens all files and checks them against each other, the config and the deck. Evaluation takes all
// documents of its file, in windows of data.window as well. check_files: also read both token files
// once, for ids beyond the vocabulary and the digest (one rank does). Not collective; blocks.
// Throws Error(refused).
TrainInputs open_train_inputs(const deck::Deck& deck, bool check_files);

} // namespace foregather::job
