// SPDX-License-Identifier: Apache-2.0
// The law of the deck, applied to a bench: which keys cannot matter in it, and what was observed of
// those that do.
#pragma once

#include <foregather/deck/ledger.hpp>

#include "bench_results.hpp"
#include "settle_common.hpp"

namespace foregather::job {

// Of a deck of the job bench, whatever the machine and the model. Tells the ledger.
void settle_bench_deck(deck::Ledger& ledger, const deck::Deck& deck);

// Before the run: inert and clamped keys. Throws Error(refused) where output.require = observed
// could not be met.
void settle_bench_before(deck::Ledger& ledger, const BenchGround& ground, const BenchPlan& plan,
                         const std::string& device_kind);

// On rank 0, when the run is over: all other keys, with what was measured.
struct BenchSeen {
    schedule::Verdict verdict = schedule::Verdict::inert; // the worst of all depths
    std::string reason;
    bool order_wrong = false;
    std::size_t spans_kept = 0;
    std::int64_t lines_logged = 0;
    bool replaced = false;
    double run_s = 0;
    base::Bytes activations;
    double reduce_bytes_per_s = 0, reduce_bytes = 0; // the fastest rank's; received by a rank
};
void settle_bench_after(deck::Ledger& ledger, const BenchResults& results, const Seen& seen,
                        const BenchSeen& bench);

} // namespace foregather::job
