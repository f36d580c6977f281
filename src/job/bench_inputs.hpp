// SPDX-License-Identifier: Apache-2.0
// The files of a bench, and the one pack that every rank computes in every pass.
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

struct BenchInputs {
    std::unique_ptr<io::WeightsFile> weights;
    std::unique_ptr<io::TokenFile> tokens;
    model::ModelConfig config;
    model::Chain chain;
    std::string tokens_sha256; // of the file; "" without check_files
    std::vector<std::string> notes;
};
// Opens both files and checks them against each other and the deck. check_files: also read the
// token file once, for ids beyond the vocabulary and the digest (one rank does). Not collective;
// blocks. Throws Error(refused).
BenchInputs open_bench_inputs(const deck::Deck& deck, bool check_files);

// Exactly so many tokens: documents from the start of the file, again from there at its end, the
// last one cut; those longer than `positions` are cut into pieces of that many. Every token but a
// piece's first is a target. Reads ids; blocks. Throws Error(refused) for a file without a document
// of two tokens.
struct BenchPack {
    PackInputs inputs;
    std::int64_t tokens = 0, documents = 0, longest = 0; // documents: pieces
    double attended = 0;                                 // over them: length x (length + 1)
};
BenchPack bench_pack(const io::TokenFile& file, std::int64_t tokens, std::int64_t positions);

} // namespace foregather::job
