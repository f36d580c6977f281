// SPDX-License-Identifier: Apache-2.0
// Items listed, shuffled, cut into batches, dealt out.
#include "data_order.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <utility>

#include <foregather/base/error.hpp>

namespace foregather::job {
namespace {

using Packs = std::vector<std::vector<std::int64_t>>;

// A number below n, each equally likely.
std::uint64_t draw(std::mt19937_64& random, std::uint64_t n) {
    const std::uint64_t uneven = (std::mt19937_64::max() % n + 1) % n; // numbers too many
    std::uint64_t number = random();
    while (number > std::mt19937_64::max() - uneven) {
        number = random();
    }
    return number % n;
}

// Counts packs that are filled in order.
class InOrder {
public:
    explicit InOrder(base::Elements pack_tokens) : pack_tokens_(pack_tokens) {}
    // Which pack an item goes to, from 0.
    std::int64_t place(base::Elements tokens) {
        if (packs_ == 0 || used_ + tokens > pack_tokens_) {
            ++packs_;
            used_ = 0;
        }
        used_ += tokens;
        return packs_ - 1;
    }

private:
    base::Elements pack_tokens_, used_ = 0;
    std::int64_t packs_ = 0;
};

const Item& item_at(const Items& items, std::int64_t i) {
    return items.items[static_cast<std::size_t>(i)];
}

// Packs by number, that of a rank's k-th being k x ranks + rank: the first ones are on all ranks.
std::optional<Packs> balanced(const Items& items, const std::vector<std::int64_t>& batch,
                              std::size_t packs, base::Elements pack_tokens) {
    std::vector<std::size_t> longest_first(batch.size());
    std::iota(longest_first.begin(), longest_first.end(), std::size_t{0});
    const auto tokens_of = [&](std::size_t i) { return item_at(items, batch[i]).tokens; };
    std::stable_sort(longest_first.begin(), longest_first.end(),
                     [&](std::size_t a, std::size_t b) { return tokens_of(a) > tokens_of(b); });
    using Load = std::pair<base::Elements, std::size_t>;
    std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
    for (std::size_t p = 0; p < packs; ++p) {
        loads.emplace(0, p);
    }
    std::vector<std::vector<std::size_t>> places(packs);
    for (const std::size_t i : longest_first) {
        const auto [load, p] = loads.top();
        if (load > 0 && load + tokens_of(i) > pack_tokens) {
            return std::nullopt;
        }
        loads.pop();
        loads.emplace(load + tokens_of(i), p);
        places[p].push_back(i);
    }
    Packs result(packs);
    for (std::size_t p = 0; p < packs; ++p) {
        std::sort(places[p].begin(), places[p].end());
        for (const std::size_t i : places[p]) {
            result[p].push_back(batch[i]);
        }
    }
    return result;
}

std::optional<Packs> in_order(const Items& items, const std::vector<std::int64_t>& batch,
                              std::size_t packs, base::Elements pack_tokens) {
    InOrder filling(pack_tokens);
    Packs result(packs);
    for (const std::int64_t i : batch) {
        const auto p = static_cast<std::size_t>(filling.place(item_at(items, i).tokens));
        if (p == packs) {
            return std::nullopt;
        }
        result[p].push_back(i);
    }
    return result;
}

} // namespace

Items make_items(const io::TokenFile& tokens, std::int64_t window, std::int64_t max_documents,
                 std::int64_t positions) {
    Items result;
    result.cut = make_cut(window, 0);
    const std::int64_t documents =
        max_documents > 0 ? std::min(max_documents, tokens.documents()) : tokens.documents();
    for (std::int64_t d = 0; d < documents; ++d) {
        if (window == 0) {
            refuse_too_long(tokens, d, positions);
        }
        const std::int64_t windows = windows_of(tokens, d, result.cut);
        for (std::int64_t k = 0; k < windows; ++k) {
            const Window w = window_at(tokens, d, k, result.cut);
            if (w.scored().empty()) {
                ++result.without_targets;
                continue;
            }
            result.items.push_back({d, k, w.tokens.size(), w.scored().size()});
            result.tokens += w.tokens.size();
            result.targets += w.scored().size();
            result.longest = std::max(result.longest, w.tokens.size());
        }
    }
    if (result.items.empty()) {
        base::refuse(tokens.path() + ": none of its " + std::to_string(documents) +
                     " documents has a token to train on: a document's first token has no " +
                     "context, and /score_from may leave out more");
    }
    return result;
}

std::vector<std::int64_t> epoch_order(std::int64_t n, std::int64_t seed, std::int64_t epoch,
                                      bool shuffle) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    if (!shuffle) {
        return order;
    }
    const auto s = static_cast<std::uint64_t>(seed), e = static_cast<std::uint64_t>(epoch);
    std::seed_seq words{static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(s >> 32),
                        static_cast<std::uint32_t>(e), static_cast<std::uint32_t>(e >> 32)};
    std::mt19937_64 random(words);
    for (std::size_t left = order.size(); left > 1; --left) {
        std::swap(order[left - 1], order[draw(random, left)]);
    }
    return order;
}

DataOrder::DataOrder(const Items& items, std::int64_t seed, bool shuffle, BatchRule rule)
    : items_(items), seed_(seed), shuffle_(shuffle), rule_(rule) {
    if (rule.items < 0 || (rule.items == 0 && (rule.packs < 1 || rule.pack_tokens < 1))) {
        base::fail("a batch of " + std::to_string(rule.items) + " documents or " +
                   std::to_string(rule.packs) + " packs of " + std::to_string(rule.pack_tokens) +
                   " tokens holds nothing");
    }
}

Batch DataOrder::batch(const Position& at) {
    const std::int64_t n = std::ssize(items_.items);
    if (at.epoch < 0 || at.place < 0 || at.place >= n) {
        base::fail("place " + std::to_string(at.place) + " of epoch " + std::to_string(at.epoch) +
                   " is none of an epoch of " + std::to_string(n) + " documents or windows");
    }
    if (epoch_ != at.epoch) {
        order_ = epoch_order(n, seed_, at.epoch, shuffle_);
        epoch_ = at.epoch;
    }
    Batch batch;
    InOrder filling(rule_.pack_tokens);
    std::int64_t place = at.place;
    for (; place < n; ++place) {
        const std::int64_t i = order_[static_cast<std::size_t>(place)];
        const Item& item = item_at(items_, i);
        if (rule_.items > 0 ? std::ssize(batch.items) == rule_.items
                            : filling.place(item.tokens) == rule_.packs) {
            break;
        }
        batch.items.push_back(i);
        batch.tokens += item.tokens;
        batch.targets += item.targets;
    }
    batch.after = place < n ? Position{at.epoch, place} : Position{at.epoch + 1, 0};
    return batch;
}

Division divide(const Items& items, const Batch& batch, int ranks, base::Elements pack_tokens) {
    base::Elements room = 0; // of packs: a longer item fills one
    for (const std::int64_t i : batch.items) {
        room += std::min(item_at(items, i).tokens, pack_tokens);
    }
    const base::Elements at_once = ranks * pack_tokens;
    Division division;
    division.per_rank = std::max<std::int64_t>(1, (room + at_once - 1) / at_once);
    // Ends: with as many packs as items each has its own.
    for (;; ++division.per_rank) {
        const auto packs = static_cast<std::size_t>(ranks * division.per_rank);
        auto dealt = balanced(items, batch.items, packs, pack_tokens);
        if (!dealt) {
            dealt = in_order(items, batch.items, packs, pack_tokens);
        }
        if (dealt) {
            for (int rank = 0; rank < ranks; ++rank) {
                for (std::int64_t k = 0; k < division.per_rank; ++k) {
                    division.packs.push_back(
                        std::move((*dealt)[static_cast<std::size_t>(k * ranks + rank)]));
                }
            }
            return division;
        }
    }
}

void fill(PackInputs& inputs, const Items& items, base::View<const std::int64_t> pack,
          const io::TokenFile& tokens) {
    std::vector<Window> windows;
    for (const std::int64_t i : pack) {
        const Item& item = item_at(items, i);
        windows.push_back(window_at(tokens, item.document, item.window, items.cut));
    }
    fill(inputs, windows, tokens);
}

} // namespace foregather::job
