// SPDX-License-Identifier: Apache-2.0
// How attention, forward and backward, walks the documents of a pack: in blocks of keys that begin
// at a document's first token.
#pragma once

#include <algorithm>
#include <string>

#include <foregather/base/error.hpp>

#include "work.hpp"

namespace foregather::kernels {

// Throws Error(failed) unless the offsets lead from 0 to `tokens`.
inline void check_offsets(Ids offsets, Elements tokens) {
    if (offsets.front() != 0 || offsets.back() != tokens ||
        !std::is_sorted(offsets.begin(), offsets.end())) {
        base::fail("attention: offsets of " + std::to_string(offsets.size() - 1) +
                   " documents do not lead from 0 up to " + std::to_string(tokens) + " tokens");
    }
}

// The first key block of a document that one of the queries sees. Blocks begin where they would
// without a window, so that one that hides nothing changes no bit.
inline Elements first_block(Elements window, base::Range queries, Elements document_begin) {
    const Elements seen =
        window > 0 ? std::max(document_begin, queries.begin + 1 - window) : document_begin;
    return document_begin + (seen - document_begin) / key_block * key_block;
}

// Calls visit(range, document) for what each document has of `tokens`, in order; `document` is all
// of it.
template <class Visit>
void each_document(Ids offsets, base::Range tokens, const Visit& visit) {
    for (Elements t = tokens.begin; t < tokens.end;) {
        const auto next = std::upper_bound(offsets.begin(), offsets.end(), t);
        const base::Range document{*(next - 1), *next};
        const Elements stop = std::min(tokens.end, document.end);
        visit(base::Range{t, stop}, document);
        t = stop;
    }
}

} // namespace foregather::kernels
