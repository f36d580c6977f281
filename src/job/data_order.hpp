// SPDX-License-Identifier: Apache-2.0
// What training is fed, step by step: documents or windows of them in an order that a seed
// shuffles, cut into global batches, and a batch's division over ranks and packs. Pure functions;
// order and batches know no ranks, so a run goes on where it was at any number of them.
#pragma once

#include <cstdint>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/io/token_file.hpp>

#include "packs.hpp"

namespace foregather::job {

// What is trained on as a whole: a document, or one window of it.
struct Item {
    std::int64_t document = 0, window = 0;
    base::Elements tokens = 0;
    base::Elements targets = 0; // tokens of it that are scored, at least 1
};

struct Items {
    std::vector<Item> items; // in the order of the file
    Cut cut;
    std::int64_t without_targets = 0; // documents or windows that are left out: nothing to learn
    base::Elements tokens = 0, targets = 0;
    base::Elements longest = 0; // item
};

// Documents, or with window > 0 windows of that many tokens, each carrying one token of the one
// before as context only: every target is in one item. max_documents 0: all. Throws
// Error(refused) for a document longer than `positions` that is not cut, and when there is no
// target at all.
Items make_items(const io::TokenFile& tokens, std::int64_t window, std::int64_t max_documents,
                 std::int64_t positions);

// A permutation of [0, n), another for each seed and epoch; without `shuffle` the identity. By
// Fisher and Yates, drawing without bias from std::mt19937_64 seeded through std::seed_seq, both of
// which the C++ standard defines to the bit.
std::vector<std::int64_t> epoch_order(std::int64_t n, std::int64_t seed, std::int64_t epoch,
                                      bool shuffle);

// Where training is: epochs run through, and items used of the one that runs.
struct Position {
    std::int64_t epoch = 0, place = 0;

    friend bool operator==(const Position&, const Position&) = default;
};

// What one optimizer step takes, over all ranks.
struct BatchRule {
    std::int64_t items = 0; // that many; 0: what fills `packs` packs
    // Of the run's first start, ranks x accumulate, and kept: not the ranks that run now.
    std::int64_t packs = 0;
    base::Elements pack_tokens = 0; // a longer item has a pack of its own
};

struct Batch {
    std::vector<std::int64_t> items;        // positions in Items, in the order of the epoch
    base::Elements tokens = 0, targets = 0; // targets: what the step's loss is divided by
    Position after;                         // where the next one begins
};

// The global batches of a run.
class DataOrder {
public:
    // items must outlive it. Throws Error(failed) for a rule that takes nothing.
    DataOrder(const Items& items, std::int64_t seed, bool shuffle, BatchRule rule);

    // The batch that begins there: a function of that alone. It does not reach into the next epoch:
    // an epoch's last batch may be smaller, each item is in one batch of it. Throws Error(failed)
    // for a place that the epoch does not have.
    Batch batch(const Position& at);

private:
    const Items& items_;
    std::int64_t seed_;
    bool shuffle_;
    BatchRule rule_;
    std::int64_t epoch_ = -1; // of order_
    std::vector<std::int64_t> order_;
};

// Packs of a batch on every rank, as many on each: some may be empty, also all of a rank's.
struct Division {
    std::int64_t per_rank = 0;
    // [ranks x per_rank], a rank's one after another: positions in Items, in the batch's order.
    std::vector<std::vector<std::int64_t>> packs;

    const std::vector<std::int64_t>& pack(int rank, std::int64_t k) const {
        return packs[static_cast<std::size_t>(rank * per_rank + k)];
    }
};

// Items whole, no pack longer than pack_tokens but those of one long item. Longest first, each goes
// to the pack with the fewest tokens so far; where that needs more packs on a rank than filling
// them in order, in order. So at `ranks` = those of BatchRule::packs no rank has more packs than
// `accumulate`.
Division divide(const Items& items, const Batch& batch, int ranks, base::Elements pack_tokens);

// The inputs of a pack of items: rows are those after which a target is. Reads ids; blocks.
void fill(PackInputs& inputs, const Items& items, base::View<const std::int64_t> pack,
          const io::TokenFile& tokens);

} // namespace foregather::job
