// SPDX-License-Identifier: Apache-2.0
// The law of the deck, applied to score: which keys cannot matter in this run, and what was
// observed of those that do.
#pragma once

#include <foregather/deck/ledger.hpp>

#include "report.hpp"
#include "settle_common.hpp"

namespace foregather::job {

// Before the job starts: inert and clamped keys. Throws Error(refused) where output.require =
// observed could not be met.
void settle_before(deck::Ledger& ledger, const deck::Deck& deck, const Transport& transport,
                   const Inputs& inputs, const Depth& depth, const std::string& device_kind);
// On rank 0, when the run is over: all other keys, with what was measured. `rows_kept` spans were
// kept, `replaced` tells whether output.file was there before.
struct Aftermath {
    std::size_t spans_kept = 0;
    std::int64_t passes_kept = 0;
    bool replaced = false, resumed = false;
    std::int64_t lines_logged = 0;
};
void settle_after(deck::Ledger& ledger, const RunFacts& facts, const Aftermath& after);

} // namespace foregather::job
