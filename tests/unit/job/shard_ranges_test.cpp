// SPDX-License-Identifier: Apache-2.0
// What counts and what decays in a shard, against literal numbers and against a walk over every
// element at many numbers of ranks.
#include "../../../src/job/shard_ranges.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace foregather::job {
namespace {

// Offsets 0 (matrix of 200), 256 (vector of 128), 384 (matrix of 3), 512 (vector of 130): 768.
shard::UnitSpec unit() {
    shard::UnitSpec spec;
    spec.name = "layer.0";
    spec.append("matrix", {20, 10}, 0, 20);
    spec.append("vector", {128}, 0, 128);
    spec.append("row", {1, 3}, 0, 1);
    spec.append("bias", {130}, 0, 130);
    return spec;
}

using Ranges = std::vector<ShardRange>;

Ranges ranges(int ranks, int rank, Decay decay) {
    return shard_ranges(unit(), shard::ShardLayout(unit().elements, ranks), rank, decay);
}

TEST(ShardRanges, one_rank_has_all_parameters_and_no_padding) {
    EXPECT_EQ(
        ranges(1, 0, Decay::matrices),
        (Ranges{{{0, 200}, true}, {{256, 384}, false}, {{384, 387}, true}, {{512, 642}, false}}));
    EXPECT_EQ(ranges(1, 0, Decay::all),
              (Ranges{{{0, 200}, true}, {{256, 387}, true}, {{512, 642}, true}}));
}

TEST(ShardRanges, dimensions_are_the_tensors_however_it_is_cut) {
    // Parts of 256: the second begins with the vector and ends in the padding of the row.
    EXPECT_EQ(ranges(3, 0, Decay::matrices), (Ranges{{{0, 200}, true}}));
    EXPECT_EQ(ranges(3, 1, Decay::matrices), (Ranges{{{0, 128}, false}, {{128, 131}, true}}));
    EXPECT_EQ(ranges(3, 2, Decay::matrices), (Ranges{{{0, 130}, false}}));
    // Parts of 128: one row and a piece of the matrix is a matrix still.
    EXPECT_EQ(ranges(6, 1, Decay::matrices), (Ranges{{{0, 72}, true}}));
    EXPECT_EQ(ranges(6, 5, Decay::matrices), (Ranges{{{0, 2}, false}}));
}

TEST(ShardRanges, ranks_beyond_the_unit_have_none) {
    for (int rank = 6; rank < 9; ++rank) {
        EXPECT_EQ(ranges(9, rank, Decay::all), Ranges{});
    }
}

TEST(ShardRanges, every_parameter_counts_once_at_any_number_of_ranks) {
    for (int ranks_now = 1; ranks_now <= 9; ++ranks_now) {
        const shard::ShardLayout layout(unit().elements, ranks_now);
        std::vector<int> counted(static_cast<std::size_t>(layout.padded()));
        std::vector<int> decayed(counted.size());
        for (int rank = 0; rank < ranks_now; ++rank) {
            base::Elements end = 0;
            for (const ShardRange& range : ranges(ranks_now, rank, Decay::matrices)) {
                EXPECT_LE(end, range.elements.begin);
                end = range.elements.end;
                EXPECT_LE(end, layout.per_rank());
                for (base::Elements e = range.elements.begin; e < end; ++e) {
                    const auto at = static_cast<std::size_t>(rank * layout.per_rank() + e);
                    ++counted[at];
                    decayed[at] += range.decays ? 1 : 0;
                }
            }
        }
        for (std::size_t e = 0; e < counted.size(); ++e) {
            const bool matrix = e < 200 || (e >= 384 && e < 387);
            const bool vector = (e >= 256 && e < 384) || (e >= 512 && e < 642);
            EXPECT_EQ(counted[e], matrix || vector ? 1 : 0) << e << " of " << ranks_now;
            EXPECT_EQ(decayed[e], matrix ? 1 : 0) << e << " of " << ranks_now;
        }
    }
}

} // namespace
} // namespace foregather::job
