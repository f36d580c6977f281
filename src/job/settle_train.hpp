// SPDX-License-Identifier: Apache-2.0
// Which keys of a training run cannot matter whatever the machine and the model, because of other
// keys of its deck. What the machine makes of the others is settled elsewhere.
#pragma once

#include <string>
#include <vector>

#include <foregather/deck/ledger.hpp>

namespace foregather::job {

struct InertKey {
    std::string key, reason;
};
// Of a deck of the job train.
std::vector<InertKey> inert_training_keys(const deck::Sections& sections);

// Tells the ledger of them.
void settle_training_deck(deck::Ledger& ledger, const deck::Deck& deck);

} // namespace foregather::job
