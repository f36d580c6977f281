// SPDX-License-Identifier: Apache-2.0
// The order of training data: shuffled evenly, each document once an epoch, resumed where it was,
// and divided over any number of ranks without a change.
#include "../../../src/job/data_order.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "documents_fixture.hpp"

namespace foregather::job {
namespace {

// Items of these lengths, of which all but the first token are targets.
Items items_of(const Ints& lengths) {
    Items items;
    for (std::size_t d = 0; d < lengths.size(); ++d) {
        items.items.push_back({static_cast<std::int64_t>(d), 0, lengths[d], lengths[d] - 1});
    }
    return items;
}

Ints random_lengths(std::size_t n, std::int64_t longest, unsigned seed) {
    std::mt19937 random(seed);
    Ints lengths(n);
    for (std::int64_t& length : lengths) {
        length = 2 + static_cast<std::int64_t>(random() % static_cast<unsigned>(longest - 1));
    }
    return lengths;
}

// So many batches from a position on.
std::vector<Batch> batches(DataOrder& order, Position at, int n) {
    std::vector<Batch> result;
    for (int i = 0; i < n; ++i) {
        result.push_back(order.batch(at));
        at = result.back().after;
    }
    return result;
}

Ints sorted(Ints values) {
    std::sort(values.begin(), values.end());
    return values;
}

TEST(EpochOrder, is_a_permutation_and_another_for_each_seed_and_epoch) {
    std::set<Ints> orders;
    for (const std::int64_t seed : {0, 1, -1}) {
        for (const std::int64_t epoch : {0, 1, 2}) {
            const Ints order = epoch_order(100, seed, epoch, true);
            EXPECT_EQ(sorted(order), epoch_order(100, 0, 0, false));
            EXPECT_EQ(order, epoch_order(100, seed, epoch, true));
            EXPECT_TRUE(orders.insert(order).second);
        }
    }
    EXPECT_EQ(epoch_order(5, 7, 3, false), (Ints{0, 1, 2, 3, 4}));
    EXPECT_EQ(epoch_order(1, 7, 3, true), Ints{0});
    EXPECT_EQ(epoch_order(0, 7, 3, true), Ints{});
}

// A checkpoint holds no order, only a place in one: another order would break every resume.
TEST(EpochOrder, is_the_one_it_always_was) {
    EXPECT_EQ(epoch_order(8, 1, 0, true), (Ints{7, 6, 0, 5, 2, 3, 1, 4}));
    EXPECT_EQ(epoch_order(8, 1, 1, true), (Ints{4, 6, 1, 3, 0, 7, 2, 5}));
}

// chi^2 of all 720 orders of 6 over 36000 draws: 719 expected, standard deviation 38.
TEST(EpochOrder, every_order_is_equally_likely) {
    std::map<Ints, int> times;
    for (std::int64_t seed = 0; seed < 60; ++seed) {
        for (std::int64_t epoch = 0; epoch < 600; ++epoch) {
            ++times[epoch_order(6, seed, epoch, true)];
        }
    }
    double chi2 = (720.0 - static_cast<double>(times.size())) * 50.0;
    for (const auto& [order, n] : times) {
        chi2 += (n - 50.0) * (n - 50.0) / 50.0;
    }
    EXPECT_GT(chi2, 719.0 - 5 * 38.0);
    EXPECT_LT(chi2, 719.0 + 5 * 38.0);
}

TEST(DataOrder, takes_documents_in_order_when_not_shuffled) {
    const Items items = items_of({5, 3, 4, 9, 2});
    DataOrder by_number(items, 0, false, {2, 0, 0});
    const Batch first = by_number.batch({0, 0});
    EXPECT_EQ(first.items, (Ints{0, 1}));
    EXPECT_EQ(first.tokens, 8);
    EXPECT_EQ(first.targets, 6);
    EXPECT_EQ(first.after, (Position{0, 2}));
    const Batch last = by_number.batch({0, 4});
    EXPECT_EQ(last.items, Ints{4}); // incomplete, and trained on
    EXPECT_EQ(last.after, (Position{1, 0}));
    // Two packs of 8: {5, 3} and {4}; then {9}, too long for any, and {2}.
    DataOrder by_packs(items, 0, false, {0, 2, 8});
    EXPECT_EQ(by_packs.batch({0, 0}).items, (Ints{0, 1, 2}));
    EXPECT_EQ(by_packs.batch({0, 3}).items, (Ints{3, 4}));
}

TEST(DataOrder, each_document_is_in_one_batch_of_every_epoch) {
    const Items items = items_of(random_lengths(101, 40, 1));
    for (const BatchRule rule :
         {BatchRule{7, 0, 0}, {1, 0, 0}, {500, 0, 0}, {0, 3, 50}, {0, 1, 10}}) {
        DataOrder order(items, 3, true, rule);
        Position at;
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
            Ints seen;
            while (at.epoch == epoch) {
                const Batch batch = order.batch(at);
                ASSERT_FALSE(batch.items.empty());
                seen.insert(seen.end(), batch.items.begin(), batch.items.end());
                at = batch.after;
            }
            EXPECT_EQ(at, (Position{epoch + 1, 0}));
            EXPECT_EQ(seen, epoch_order(101, 3, epoch, true));
        }
    }
}

TEST(DataOrder, g3_resumed_in_the_middle_is_unbroken) {
    const Items items = items_of(random_lengths(23, 40, 2));
    for (const BatchRule rule : {BatchRule{4, 0, 0}, {0, 3, 50}}) {
        DataOrder unbroken(items, 5, true, rule);
        const std::vector<Batch> all = batches(unbroken, {}, 30);
        EXPECT_GT(all.back().after.epoch, 2);
        for (std::size_t stop = 1; stop < all.size(); ++stop) {
            DataOrder resumed(items, 5, true, rule);
            const std::vector<Batch> rest = batches(resumed, all[stop - 1].after, 3);
            for (std::size_t i = 0; i < rest.size() && stop + i < all.size(); ++i) {
                EXPECT_EQ(rest[i].items, all[stop + i].items);
                EXPECT_EQ(rest[i].after, all[stop + i].after);
            }
        }
    }
}

TEST(DataOrder, place_that_no_epoch_has_is_an_error) {
    const Items items = items_of({2, 2});
    DataOrder order(items, 0, true, {1, 0, 0});
    EXPECT_THROW(order.batch({0, 2}), base::Error);
    EXPECT_THROW(order.batch({-1, 0}), base::Error);
    EXPECT_THROW(DataOrder(items, 0, true, {0, 0, 8}), base::Error);
}

void check_division(const Items& items, const Batch& batch, int ranks, base::Elements pack_tokens) {
    const Division division = divide(items, batch, ranks, pack_tokens);
    ASSERT_EQ(std::ssize(division.packs), ranks * division.per_rank);
    Ints all;
    for (int rank = 0; rank < ranks; ++rank) {
        for (std::int64_t k = 0; k < division.per_rank; ++k) {
            const Ints& pack = division.pack(rank, k);
            base::Elements tokens = 0;
            for (const std::int64_t i : pack) {
                tokens += items.items[static_cast<std::size_t>(i)].tokens;
            }
            EXPECT_TRUE(tokens <= pack_tokens || pack.size() == 1);
            all.insert(all.end(), pack.begin(), pack.end());
        }
    }
    EXPECT_EQ(sorted(all), sorted(batch.items));
}

TEST(Division, deals_every_document_whole_and_once_at_any_number_of_ranks) {
    const Items items = items_of(random_lengths(60, 70, 3));
    for (const BatchRule rule : {BatchRule{13, 0, 0}, {1, 0, 0}, {60, 0, 0}, {0, 6, 64}}) {
        DataOrder order(items, 9, true, rule);
        for (const Batch& batch : batches(order, {}, 8)) {
            for (const int ranks : {1, 2, 3, 4, 5, 8, 64}) {
                check_division(items, batch, ranks, 64);
            }
        }
    }
}

TEST(Division, needs_no_more_packs_than_accumulate_at_the_ranks_of_the_first_start) {
    for (unsigned seed = 0; seed < 40; ++seed) {
        const Items items = items_of(random_lengths(50, 90, seed));
        for (const int ranks : {1, 2, 3, 4}) {
            for (const std::int64_t accumulate : {1, 2, 3}) {
                DataOrder order(items, seed, true, {0, ranks * accumulate, 80});
                for (const Batch& batch : batches(order, {}, 10)) {
                    EXPECT_LE(divide(items, batch, ranks, 80).per_rank, accumulate);
                }
            }
        }
    }
}

TEST(Division, spreads_few_documents_over_ranks_and_some_have_none) {
    const Items items = items_of({4, 9, 5});
    Batch batch;
    batch.items = {0, 1, 2};
    batch.tokens = 18;
    const Division two = divide(items, batch, 2, 100);
    EXPECT_EQ(two.per_rank, 1);
    EXPECT_EQ(two.pack(0, 0), Ints{1});
    EXPECT_EQ(two.pack(1, 0), (Ints{0, 2}));
    const Division four = divide(items, batch, 4, 100);
    EXPECT_EQ(four.per_rank, 1);
    EXPECT_EQ(four.pack(0, 0), Ints{1});
    EXPECT_EQ(four.pack(1, 0), Ints{2});
    EXPECT_EQ(four.pack(2, 0), Ints{0});
    EXPECT_EQ(four.pack(3, 0), Ints{});
}

// Longest first cannot fill two packs of 10 with these; in order it goes.
TEST(Division, falls_back_to_the_order_where_that_saves_a_pack) {
    const Items items = items_of({3, 3, 2, 2, 4, 6});
    Batch batch;
    batch.items = {0, 1, 2, 3, 4, 5};
    batch.tokens = 20;
    const Division division = divide(items, batch, 2, 10);
    EXPECT_EQ(division.per_rank, 1);
    EXPECT_EQ(division.pack(0, 0), (Ints{0, 1, 2, 3}));
    EXPECT_EQ(division.pack(1, 0), (Ints{4, 5}));
}

TEST(Items, i5_documents_without_targets_are_left_out_and_counted) {
    const Documents documents({4, 0, 1, 6, 3, 5}, {1, 1, 1, 2, 3, 5});
    const Items items = make_items(documents.file(), 0, 0, 6);
    ASSERT_EQ(items.items.size(), 2U);
    EXPECT_EQ(items.items[0].document, 0);
    EXPECT_EQ(items.items[0].targets, 3);
    EXPECT_EQ(items.items[1].document, 3);
    EXPECT_EQ(items.items[1].targets, 4);
    EXPECT_EQ(items.without_targets, 4);
    EXPECT_EQ(items.targets, 7);
    EXPECT_EQ(items.tokens, 10);
    EXPECT_EQ(items.longest, 6);
    EXPECT_EQ(make_items(documents.file(), 0, 3, 6).items.size(), 1U);
}

TEST(Items, too_long_or_none_are_refused) {
    const Documents documents({4, 9});
    io::testing::expect_refused({"document 1", "9 tokens", "data.window"},
                                [&] { make_items(documents.file(), 0, 0, 8); });
    EXPECT_EQ(make_items(documents.file(), 8, 0, 8).items.size(), 3U);
    const Documents nothing({1, 0, 3}, {1, 1, 3});
    io::testing::expect_refused({"none of its 3 documents"},
                                [&] { make_items(nothing.file(), 0, 0, 8); });
}

// Ids ascend with tokens, so an id names a token of the file.
TEST(Items, windows_train_on_every_target_once_whatever_the_packs) {
    const Documents documents({5, 0, 23, 1, 9, 40, 2}, {1, 1, 3, 1, 9, 1, 1});
    const io::TokenFile& tokens = documents.file();
    for (const std::int64_t window : {0, 2, 4, 8}) {
        const Items items = make_items(tokens, window, 0, 64);
        DataOrder order(items, 1, true, {0, 4, 16});
        std::set<std::int64_t> scored;
        base::Elements targets = 0;
        for (Position at; at.epoch == 0;) {
            const Batch batch = order.batch(at);
            targets += batch.targets;
            for (const Ints& pack : divide(items, batch, 3, 16).packs) {
                PackInputs in;
                fill(in, items, pack, tokens);
                ASSERT_EQ(std::ssize(in.offsets), std::ssize(pack) + 1);
                ASSERT_EQ(in.offsets.back(), std::ssize(in.ids));
                for (std::size_t s = 0; s < in.rows.size(); ++s) {
                    const auto row = static_cast<std::size_t>(in.rows[s]);
                    EXPECT_EQ(in.targets[s], in.ids[row] + 1);
                    EXPECT_EQ(in.scores[s], in.targets[s]);
                    EXPECT_TRUE(scored.insert(in.targets[s]).second);
                }
                for (std::size_t i = 0; i + 1 < in.offsets.size(); ++i) {
                    EXPECT_EQ(in.positions[static_cast<std::size_t>(in.offsets[i])], 0);
                }
            }
            at = batch.after;
        }
        EXPECT_EQ(targets, 4 + 20 + 39 + 1);
        EXPECT_EQ(std::ssize(scored), targets);
        EXPECT_EQ(items.targets, targets);
    }
}

} // namespace
} // namespace foregather::job
