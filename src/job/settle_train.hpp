// SPDX-License-Identifier: Apache-2.0
// The law of the deck, applied to training: which keys cannot matter in this run, and what was
// observed of those that do.
#pragma once

#include <string>
#include <vector>

#include <foregather/deck/ledger.hpp>

#include "settle_common.hpp"
#include "train_report.hpp"

namespace foregather::job {

struct InertKey {
    std::string key, reason;
};
// Of a deck of the job train, whatever the machine and the model.
std::vector<InertKey> inert_training_keys(const deck::Sections& sections);

// Tells the ledger of them.
void settle_training_deck(deck::Ledger& ledger, const deck::Deck& deck);

// Before the run: inert and clamped keys. Throws Error(refused) where output.require = observed
// could not be met, or a key asks for what training does not do.
struct TrainChoices {
    const Transport& transport;
    int replicas = 1;
    const TrainInputs& inputs;
    const TrainSchedule& schedule;
    std::string device_kind;
};
void settle_train_before(deck::Ledger& ledger, const deck::Deck& deck, const TrainChoices& chosen);

// What the steps of this start took.
struct BatchesSeen {
    std::int64_t items = 0, largest = 0; // of all batches, of one
    std::int64_t steps_back = 0;         // items that lie before the one taken before them
    std::vector<std::int64_t> first;     // documents of the first few items
    std::int64_t last = -1;              // item

    void take(const Batch& batch, const Items& of);
};

// On rank 0, when the run is over: all other keys, with what was measured.
struct TrainSeen {
    std::int64_t packs_of_a_batch = 0; // where train.batch_documents is 0
    base::Bytes activations;
    std::string loaded; // what of a checkpoint; "" if there was none
    BatchesSeen batches;
    kernels::AdamwStep optimizer; // what the kernels were given last
};
void settle_train_after(deck::Ledger& ledger, const TrainFacts& facts, const TrainInputs& inputs,
                        const Seen& seen, const OutputSeen& output, const TrainSeen& train);

} // namespace foregather::job
