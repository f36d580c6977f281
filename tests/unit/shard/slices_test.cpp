// SPDX-License-Identifier: Apache-2.0
// The slices of all ranks, read as rows of a file and gathered, put every tensor together again.
// The file is pretended here; reading a real one is in tests/mpi/shard.
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/shard/layout.hpp>

using namespace foregather;
using shard::ShardLayout;
using shard::Slice;
using shard::UnitSpec;

namespace {

// What the file holds at an element of a tensor: a number that no other element of any tensor has.
std::int64_t stored(const std::string& tensor, base::Elements element) {
    return static_cast<std::int64_t>(tensor[0]) * 1'000'000'000 + element;
}

constexpr std::int64_t padding = -1; // where no slice wrote

// A rank's part of the unit, as its slices say: rows read whole, then cut.
std::vector<std::int64_t> part_of_rank(const UnitSpec& unit, const ShardLayout& layout, int rank) {
    std::vector<std::int64_t> part(static_cast<std::size_t>(layout.per_rank()), padding);
    for (const Slice& slice : shard::slices_of(unit, layout, rank)) {
        const base::Elements row = slice.part->row_elements();
        EXPECT_GT(slice.elements, 0);
        EXPECT_LT(slice.skip, row) << "a row is read that the rank owns nothing of";
        EXPECT_LT((slice.rows - 1) * row, slice.skip + slice.elements) << "so is the last";
        EXPECT_LE(slice.skip + slice.elements, slice.rows * row) << "too few rows are read";
        EXPECT_GE(slice.first_row, slice.part->first_row);
        EXPECT_LE(slice.first_row + slice.rows, slice.part->first_row + slice.part->rows);
        for (base::Elements i = 0; i < slice.elements; ++i) {
            const base::Elements from = slice.first_row * row + slice.skip + i;
            std::int64_t& to = part.at(static_cast<std::size_t>(slice.into + i));
            EXPECT_EQ(to, padding) << "written twice";
            to = stored(slice.part->tensor, from);
        }
    }
    return part;
}

// Gathers the parts of all ranks, and compares every element with the file's.
void expect_whole(const UnitSpec& unit, int ranks) {
    const ShardLayout layout(unit.elements, ranks);
    std::vector<std::int64_t> gathered;
    for (int r = 0; r < ranks; ++r) {
        const auto part = part_of_rank(unit, layout, r);
        gathered.insert(gathered.end(), part.begin(), part.end());
    }
    ASSERT_EQ(static_cast<base::Elements>(gathered.size()), layout.padded());
    std::vector<std::int64_t> expected(gathered.size(), padding);
    for (const shard::TensorPart& part : unit.parts) {
        const base::Elements first = part.first_row * part.row_elements();
        for (base::Elements i = 0; i < part.elements(); ++i) {
            expected[static_cast<std::size_t>(part.offset + i)] = stored(part.tensor, first + i);
        }
    }
    EXPECT_EQ(gathered, expected) << "with " << ranks << " ranks";
}

const std::vector<int> rank_counts = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 40};

} // namespace

TEST(SlicesTest, put_odd_tensors_together_again) {
    UnitSpec unit;
    unit.append("a", {7, 3}, 0, 7);
    unit.append("b", {1, 1}, 0, 1);
    unit.append("c", {13}, 0, 13);
    unit.append("d", {5, 2, 3}, 0, 5);
    unit.append("e", {}, 0, 1);
    unit.append("f", {129, 1}, 0, 129);
    unit.append("g", {1, 700}, 0, 1);
    unit.append("h", {61, 51}, 0, 61);
    unit.append("i", {127}, 0, 127);
    unit.append("j", {128}, 0, 128);
    for (const int ranks : rank_counts) {
        expect_whole(unit, ranks);
    }
}

TEST(SlicesTest, put_pieces_of_a_table_together_again) {
    constexpr std::int64_t rows = 97;
    for (const std::int64_t piece : {1, 10, 33, 96, 97}) {
        for (std::int64_t first = 0; first < rows; first += piece) {
            UnitSpec unit;
            unit.append("t", {rows, 19}, first, std::min(piece, rows - first));
            for (const int ranks : rank_counts) {
                expect_whole(unit, ranks);
            }
        }
    }
}

TEST(SlicesTest, every_length_around_the_alignment) {
    for (std::int64_t n = 1; n <= 400; ++n) {
        UnitSpec unit;
        unit.append("a", {n}, 0, n);
        unit.append("b", {2, n}, 0, 2);
        for (const int ranks : {1, 2, 3, 5}) {
            expect_whole(unit, ranks);
        }
    }
}

TEST(SlicesTest, more_ranks_than_rows_share_a_row) {
    UnitSpec unit;
    unit.append("w", {2, 1000}, 0, 2); // 2000 elements over 4 ranks: parts of 512
    const ShardLayout layout(unit.elements, 4);
    const auto slices = shard::slices_of(unit, layout, 1);
    ASSERT_EQ(slices.size(), 1U);
    EXPECT_EQ(slices[0].first_row, 0);
    EXPECT_EQ(slices[0].rows, 2); // elements 512 .. 1024 touch both
    EXPECT_EQ(slices[0].skip, 512);
    EXPECT_EQ(slices[0].elements, 512);
    EXPECT_EQ(slices[0].into, 0);
}

TEST(SlicesTest, a_rank_of_padding_alone_reads_nothing) {
    UnitSpec unit;
    unit.append("w", {100}, 0, 100);
    const ShardLayout layout(unit.elements, 3);
    EXPECT_EQ(shard::slices_of(unit, layout, 0).size(), 1U);
    EXPECT_TRUE(shard::slices_of(unit, layout, 1).empty());
    EXPECT_TRUE(shard::slices_of(unit, layout, 2).empty());
}

TEST(SlicesTest, a_tensor_without_elements_is_skipped) {
    UnitSpec unit;
    unit.append("a", {0, 5}, 0, 0);
    unit.append("b", {3, 0}, 0, 3);
    unit.append("c", {4}, 0, 4);
    EXPECT_EQ(unit.elements, 128);
    expect_whole(unit, 2);
}
