// SPDX-License-Identifier: Apache-2.0
// Tensors that units are made of, and checksums of shards.
#include <foregather/shard/save.hpp>

#include <bit>
#include <limits>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>

namespace foregather::shard {
namespace {

std::int64_t checksum(const std::vector<float>& values) {
    Checksum sum;
    sum.add(values);
    return sum.value();
}

TEST(TensorsOf, list_each_once_however_many_units_it_is_cut_into) {
    std::vector<UnitSpec> units(3);
    units[0].append("embed", {10, 4}, 0, 6);
    units[1].append("embed", {10, 4}, 6, 4);
    units[2].append("norm", {4}, 0, 4);
    const auto tensors = tensors_of(units);
    ASSERT_EQ(tensors.size(), 2U);
    EXPECT_EQ(tensors[0].name, "embed");
    EXPECT_EQ(tensors[0].shape, (base::Shape{10, 4}));
    EXPECT_EQ(tensors[1].name, "norm");
    units.pop_back();
    units.push_back(units[1]); // rows that two units hold
    EXPECT_THROW(tensors_of(units), base::Error);
}

// FNV-1a's rule by hand: (0xcbf29ce484222325 ^ 0x3f800000) * 0x100000001b3 for one 1.0.
TEST(Checksum, is_that_of_its_definition) {
    EXPECT_EQ(checksum({}), static_cast<std::int64_t>(0xcbf29ce484222325));
    EXPECT_EQ(checksum({1.0F}), static_cast<std::int64_t>(0x2f63bdaad481b7df));
}

TEST(Checksum, of_pieces_is_that_of_the_whole) {
    Checksum sum;
    sum.add(std::vector<float>{1.0F, 2.0F});
    sum.add(std::vector<float>{});
    sum.add(std::vector<float>{3.0F});
    EXPECT_EQ(sum.value(), checksum({1.0F, 2.0F, 3.0F}));
}

TEST(Checksum, tells_any_changed_bit_and_any_changed_order) {
    std::vector<float> values(300);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 0.1F * static_cast<float>(i);
    }
    const std::int64_t sum = checksum(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
        for (int bit = 0; bit < 32; ++bit) {
            std::vector<float> other = values;
            other[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(other[i]) ^ (1U << bit));
            EXPECT_NE(checksum(other), sum) << i << " " << bit;
        }
    }
    EXPECT_NE(checksum({1.0F, 2.0F}), checksum({2.0F, 1.0F}));
    EXPECT_NE(checksum({0.0F}), checksum({-0.0F}));
}

TEST(Replicas, that_differ_are_named_and_equal_ones_are_not) {
    EXPECT_EQ(differing_replicas({7}, 1), "");
    EXPECT_EQ(differing_replicas({7, 8, 9}, 3), ""); // one replica
    EXPECT_EQ(differing_replicas({7, 8, 7, 8, 7, 8}, 2), "");
    const std::string told = differing_replicas({7, 8, 7, 9, 6, 8}, 2);
    EXPECT_NE(told.find("3 from rank 1, 4 from rank 0"), std::string::npos) << told;
}

} // namespace
} // namespace foregather::shard
