// SPDX-License-Identifier: Apache-2.0
// Whole documents, or windows of them, packed into equal work: a pure function of the token file
// and the deck, never of the number of ranks, so that a pack's bits do not depend on who computes
// it.
#pragma once

#include <string>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/io/token_file.hpp>

namespace foregather::job {

// How documents are cut into windows.
struct Cut {
    base::Elements window = 0; // tokens; 0: documents are whole
    base::Elements stride = 0; // from start to start, 1 to window - 1
};
// `stride` 0 becomes window - 1.
Cut make_cut(std::int64_t window, std::int64_t stride);

// What attention sees as a whole: a document, or one window of it. All ranges are of /tokens.
struct Window {
    std::int64_t document = 0;
    base::Range tokens; // positions count from its begin
    // Tokens whose scores it gives: of all windows that hold such a token behind their first, this
    // one starts first. Document begin (first window) or end of the window before, to its own end.
    base::Range own;
    // Tokens after which it gives the distribution: that of token t in the window that scores token
    // t + 1; where t + 1 is not scored, in the one that owns t.
    base::Range rows;
    base::Elements score_begin = 0; // first token of the document that is scored

    base::Range scored() const { return {std::max(own.begin, score_begin), own.end}; }
};
std::int64_t windows_of(const io::TokenFile& tokens, std::int64_t document, const Cut& cut);
// Window k of a document, from 0.
Window window_at(const io::TokenFile& tokens, std::int64_t document, std::int64_t k,
                 const Cut& cut);

// Consecutive windows; none is cut and none is padded. Their `own` ranges follow each other, and so
// do their `rows`.
struct Pack {
    std::int64_t first_document = 0, first_window = 0; // where it begins
    std::int64_t windows = 0;
    base::Range own, rows;     // of all its windows
    base::Elements tokens = 0; // T: with what is context only
    base::Elements scored = 0; // S
    double attended = 0;       // over its windows: length x (length + 1)
};

struct PackPlan {
    std::vector<Pack> packs;
    Cut cut;
    std::int64_t documents = 0; // of the token file that are run
    std::int64_t windows = 0, cut_documents = 0;
    std::vector<std::int64_t> split_documents; // those whose windows are in several packs
    base::Elements tokens = 0;                 // in all packs
    base::Elements rows = 0, scored = 0;       // in all packs
    base::Elements most_tokens = 0;            // of a pack
    base::Elements most_rows = 0;              // of a pack
    std::int64_t most_windows = 0;             // of a pack
    base::Elements longest = 0;                // window
    std::int64_t long_windows = 0; // longer than batch.tokens: each has a pack of its own
};

// Throws Error(refused), which says how to cut it, for a document of more tokens than that.
void refuse_too_long(const io::TokenFile& tokens, std::int64_t document, std::int64_t positions);

// In the order of the file: a pack is closed when the next window would take it past batch_tokens.
// A longer window has a pack of its own. Throws Error(refused) for a document longer than
// `positions` that is not cut, or when nothing in the file can be scored. max_documents 0: all.
PackPlan make_packs(const io::TokenFile& tokens, base::Elements batch_tokens,
                    std::int64_t max_documents, std::int64_t positions, const Cut& cut = {});

// The windows of a pack, in order.
template <class Use>
void for_each_window(const Pack& pack, const io::TokenFile& tokens, const Cut& cut, Use use) {
    std::int64_t document = pack.first_document, k = pack.first_window;
    for (std::int64_t i = 0; i < pack.windows; ++i) {
        use(window_at(tokens, document, k, cut));
        if (++k == windows_of(tokens, document, cut)) {
            ++document;
            k = 0;
        }
    }
}

// The inputs of a pack, as the model takes them, and what its results are for.
struct PackInputs {
    std::vector<std::int32_t> ids, positions, offsets, rows;
    std::vector<std::int32_t> targets; // [S]; -1: nothing is scored after this row
    std::vector<std::int64_t> scores;  // [S] the token of /tokens that is scored, -1: none
};
// Fills `inputs` (its memory is reused). all_rows: the head is asked for every row of pack.rows,
// else only for rows that score a token. Reads the pack's ids; blocks.
void fill(PackInputs& inputs, const Pack& pack, const io::TokenFile& tokens, const Cut& cut,
          bool all_rows);

// The same of any windows, in this order: the head is asked for rows that score a token.
void fill(PackInputs& inputs, base::View<const Window> windows, const io::TokenFile& tokens);

} // namespace foregather::job
