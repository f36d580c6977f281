// SPDX-License-Identifier: Apache-2.0
// The files and decisions of a score run, made before any work: whatever can be refused is refused
// here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <foregather/deck/deck.hpp>
#include <foregather/io/token_file.hpp>
#include <foregather/io/weights_file.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/model/config.hpp>

#include "packs.hpp"

namespace foregather::job {

struct Inputs {
    std::unique_ptr<io::WeightsFile> weights;
    std::unique_ptr<io::TokenFile> tokens;
    model::ModelConfig config;
    model::Chain chain;
    PackPlan packs;
    std::string tokens_sha256; // of the file; empty until a rank needs it
    std::vector<std::string>
        notes; // what the user should be told: defaults taken, an absent tokenizer
};

// Opens both files and checks them against each other, the config and the deck. check_ids: also
// read every token id once (one rank does). Not collective. Throws
// Error(refused).
Inputs open_inputs(const deck::Deck& deck, bool check_ids);

} // namespace foregather::job
