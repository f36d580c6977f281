// SPDX-License-Identifier: Apache-2.0
// One line for each pair of keys of which one takes the other's meaning away.
#include "settle_train.hpp"

namespace foregather::job {

std::vector<InertKey> inert_training_keys(const deck::Sections& s) {
    std::vector<InertKey> inert;
    const auto say = [&](bool is, const char* key, const std::string& reason) {
        if (is) {
            inert.push_back({key, reason});
        }
    };
    const deck::TrainSection& t = s.train;
    const deck::CheckpointSection& c = s.checkpoint;
    say(!s.model.weights.empty(), "model.init_seed", "model.weights is given: nothing is random");
    say(t.schedule == "constant", "train.min_learning_rate",
        "train.schedule = constant: the learning rate does not go down");
    say(t.weight_decay == 0, "train.decay", "train.weight_decay = 0: nothing decays");
    say(t.batch_documents > 0, "train.accumulate",
        "train.batch_documents = " + std::to_string(t.batch_documents) +
            ": a step has as many packs as these need");
    say(!t.shuffle, "train.seed", "train.shuffle = false: documents come in the file's order");
    say(t.evaluate.empty(), "train.evaluate_every",
        "train.evaluate is empty: nothing is evaluated");
    const std::string none = "checkpoint.directory is empty: none is written";
    say(c.directory.empty(), "checkpoint.every", none);
    say(c.directory.empty(), "checkpoint.keep", none);
    const bool nowhere = c.directory.empty() && c.resume == "auto";
    say(nowhere, "checkpoint.resume",
        "checkpoint.directory is empty: there is nothing to look for");
    say(nowhere || c.resume == "none", "checkpoint.load_optimizer",
        "the run goes on from no checkpoint");
    say(!s.output.timeline, "output.timeline_passes", "output.timeline = false: no spans are kept");
    return inert;
}

void settle_training_deck(deck::Ledger& ledger, const deck::Deck& deck) {
    for (const InertKey& inert : inert_training_keys(deck.sections())) {
        ledger.inert(inert.key, inert.reason);
    }
}

} // namespace foregather::job
