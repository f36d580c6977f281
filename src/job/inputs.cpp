// SPDX-License-Identifier: Apache-2.0
// Opening, comparing, refusing.
#include "inputs.hpp"

#include "model_files.hpp"

namespace foregather::job {

Inputs open_inputs(const deck::Deck& deck, bool check_ids) {
    const deck::Sections& s = deck.sections();
    Inputs in;
    OpenedWeights opened = open_weights(s.model.weights);
    in.weights = std::move(opened.file);
    in.config = std::move(opened.config);
    in.tokens = std::make_unique<io::TokenFile>(s.data.tokens);
    in.notes = in.config.notes;
    const std::string note =
        compare_tokenizers(deck, {in.weights->path(), in.weights->tokenizer_sha256()},
                           {in.tokens->path(), in.tokens->tokenizer_sha256()});
    if (!note.empty()) {
        in.notes.push_back(note);
    }
    refuse_window_beyond(deck, in.config);
    if (s.score.top_k > in.config.vocabulary) {
        refuse_beyond(deck, "score.top_k", s.score.top_k,
                      "the vocabulary has " + std::to_string(in.config.vocabulary) + " tokens");
    }
    in.packs = make_packs(*in.tokens, s.batch.tokens, s.data.max_documents, in.config.positions,
                          make_cut(s.data.window, s.data.stride));
    if (in.packs.long_windows > 0) {
        in.notes.push_back(
            long_note(in.packs.long_windows, s.data.window > 0, s.batch.tokens, in.packs.longest));
    }
    if (check_ids) {
        in.tokens->check_ids(in.config.vocabulary);
    }
    in.chain = model::make_chain(in.config, s.fsdp.piece_bytes);
    return in;
}

} // namespace foregather::job
