// SPDX-License-Identifier: Apache-2.0
// Whole documents packed into equal work: a pure function of the token file and the deck, never of
// the number of ranks, so that a pack's bits do not depend on who computes it.
#pragma once

#include <string>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/io/token_file.hpp>

namespace foregather::job {

// Consecutive documents; none is cut and none is padded.
struct Pack {
    std::int64_t first_document = 0;
    std::int64_t documents = 0;
    std::int64_t first_token = 0; // in /tokens
    base::Elements tokens = 0;    // T
    base::Elements scored = 0;    // S
};

struct PackPlan {
    std::vector<Pack> packs;
    std::int64_t documents = 0;      // of the token file that are run
    base::Elements tokens = 0;       // in all packs
    base::Elements scored = 0;       // in all packs
    base::Elements most_tokens = 0;  // of a pack
    base::Elements longest = 0;      // document
    std::int64_t long_documents = 0; // longer than batch.tokens: each has a pack of its own
};

// In the order of the file: a pack is closed when the next document would take it past
// batch_tokens. A longer document has a pack of its own. Throws Error(refused) for a document
// longer than `positions`, or when nothing in the file can be scored. max_documents 0: all.
PackPlan make_packs(const io::TokenFile& tokens, base::Elements batch_tokens,
                    std::int64_t max_documents, std::int64_t positions);

// The inputs of a pack, as the model takes them.
struct PackInputs {
    std::vector<std::int32_t> ids, positions, offsets, rows, targets;
};
// Fills `inputs` (its memory is reused). Reads the pack's ids; blocks.
void fill(PackInputs& inputs, const Pack& pack, const io::TokenFile& tokens);

} // namespace foregather::job
