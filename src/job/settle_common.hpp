// SPDX-License-Identifier: Apache-2.0
// The law of the deck for keys that all jobs share: device, gathers, output. Which keys a job has
// beside them is settled by its own file.
#pragma once

#include <string>
#include <vector>

#include <foregather/backend/backend.hpp>
#include <foregather/deck/ledger.hpp>
#include <foregather/mesh/topology.hpp>
#include <foregather/model/chain.hpp>

#include "figures.hpp"
#include "memory_plan.hpp"

namespace foregather::job {

// What a run on rank 0 knows at its end of what all jobs have.
struct Seen {
    const deck::Deck& deck;
    const mesh::Topology& topology;
    const Transport& transport;
    std::string transport_seen; // what the gathers ran on, as it names itself
    std::string backend_kind, backend_why, product, product_why;
    const ParamType& param; // asked for
    base::DType weights_seen = base::DType::f32;
    const MemoryPlan& memory;
    const std::vector<RankFigures>& ranks;
    std::vector<std::string> overrides; // of keys, by variables
};
struct OutputSeen {
    std::size_t spans_kept = 0;
    std::int64_t passes_kept = 0, passes = 0;
    std::int64_t lines_logged = 0;
    bool observed = false; // what output.require asks for
    std::string verdict, reason;
    std::string existing; // what was there
};

// As printf, of one number.
std::string in_format(double value, const char* format);

// Before the run. The kind of device decides which of its keys matter.
void settle_kind(deck::Ledger& ledger, const std::string& device_kind);
// fsdp.piece_bytes below a row is clamped.
void settle_cut(deck::Ledger& ledger, const deck::Deck& deck, const model::ModelConfig& config);
void settle_tokenizers(deck::Ledger& ledger, const deck::Deck& deck, const std::string& of_weights,
                       const std::string& of_tokens);
// Throws Error(refused) for a model whose heads the backend's attention does not take.
void refuse_wide_heads(const deck::Deck& deck, int head_dim, backend::Backend& backend);

// After the run.
// job.max_time, of a run that did all its work.
void settle_limit(deck::Ledger& ledger, const deck::Sections& sections, double seconds);
void settle_prefetch(deck::Ledger& ledger, const char* key, const RunPrefetch& run,
                     const Depth& depth, int asked);
void settle_gathers(deck::Ledger& ledger, const Seen& seen);
void settle_device(deck::Ledger& ledger, const Seen& seen);
void settle_pieces(deck::Ledger& ledger, const deck::Deck& deck, const model::Chain& chain,
                   const model::ModelConfig& config);
void settle_output(deck::Ledger& ledger, const Seen& run, const OutputSeen& seen);

} // namespace foregather::job
