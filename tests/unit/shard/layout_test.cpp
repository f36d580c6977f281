// SPDX-License-Identifier: Apache-2.0
// Who owns which elements of a unit, where parts of tensors lie in it, and where units lie in the
// arenas. That slices put tensors together again is in slices_test.cpp.
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/shard/layout.hpp>

using namespace foregather;
using shard::ArenaPlan;
using shard::ShardLayout;
using shard::UnitSpec;

namespace {

UnitSpec unit_of(std::vector<base::Shape> shapes) {
    UnitSpec unit;
    unit.name = "unit";
    for (const base::Shape& shape : shapes) {
        unit.append("tensor." + std::to_string(unit.parts.size()), shape, 0,
                    shape.empty() ? 1 : shape[0]);
    }
    return unit;
}

} // namespace

TEST(ShardLayoutTest, parts_are_disjoint_cover_the_unit_and_are_aligned) {
    for (base::Elements whole = 0; whole <= 2000; ++whole) {
        for (int ranks = 1; ranks <= 9; ++ranks) {
            const ShardLayout layout(whole, ranks);
            ASSERT_EQ(layout.per_rank() % shard::alignment, 0);
            ASSERT_EQ(layout.padded(), ranks * layout.per_rank());
            ASSERT_GE(layout.padded(), whole);
            ASSERT_LT(layout.padded() - whole, ranks * shard::alignment)
                << "more padding than needed";
            base::Elements next = 0;
            for (int r = 0; r < ranks; ++r) {
                const base::Range owned = layout.owned(r);
                ASSERT_EQ(owned.begin, next) << whole << " elements, rank " << r << " of " << ranks;
                ASSERT_LE(owned.size(), layout.per_rank());
                ASSERT_GE(owned.size(), 0);
                if (!owned.empty()) { // where the gather puts this rank's part
                    ASSERT_EQ(owned.begin, r * layout.per_rank());
                }
                next = owned.end;
            }
            ASSERT_EQ(next, whole);
        }
    }
}

TEST(ShardLayoutTest, a_unit_of_300_over_3_ranks) {
    const ShardLayout layout(300, 3);
    EXPECT_EQ(layout.per_rank(), 128);
    EXPECT_EQ(layout.padded(), 384);
    EXPECT_EQ(layout.owned(0), (base::Range{0, 128}));
    EXPECT_EQ(layout.owned(1), (base::Range{128, 256}));
    EXPECT_EQ(layout.owned(2), (base::Range{256, 300}));
}

TEST(ShardLayoutTest, padding_may_cover_whole_ranks) {
    const ShardLayout layout(130, 4);
    EXPECT_EQ(layout.per_rank(), 128);
    EXPECT_EQ(layout.owned(1), (base::Range{128, 130}));
    EXPECT_TRUE(layout.owned(2).empty());
    EXPECT_TRUE(layout.owned(3).empty());
}

TEST(ShardLayoutTest, counts_beyond_32_bits) {
    const ShardLayout layout(10'000'000'000, 3);
    EXPECT_EQ(layout.per_rank(), 3'333'333'376); // 26'041'667 x 128
    EXPECT_EQ(layout.owned(2), (base::Range{6'666'666'752, 10'000'000'000}));
}

TEST(UnitSpecTest, tensors_begin_at_multiples_of_the_alignment) {
    const UnitSpec unit = unit_of({{3, 50}, {128}, {1}, {}, {2, 2, 2}});
    ASSERT_EQ(unit.parts.size(), 5U);
    EXPECT_EQ(unit.parts[0].offset, 0);
    EXPECT_EQ(unit.parts[0].elements(), 150);
    EXPECT_EQ(unit.parts[1].offset, 256);
    EXPECT_EQ(unit.parts[2].offset, 384);
    EXPECT_EQ(unit.parts[3].offset, 512);
    EXPECT_EQ(unit.parts[3].elements(), 1);
    EXPECT_EQ(unit.parts[4].offset, 640);
    EXPECT_EQ(unit.parts[4].row_elements(), 4);
    EXPECT_EQ(unit.elements, 768);
}

TEST(UnitSpecTest, a_part_of_a_tensor_holds_its_rows_only) {
    UnitSpec unit;
    unit.append("lm_head.weight", {97, 8}, 40, 20);
    EXPECT_EQ(unit.parts[0].elements(), 160);
    EXPECT_EQ(unit.elements, 256);
}

TEST(UnitSpecTest, part_of_points_into_the_gathered_unit) {
    const UnitSpec unit = unit_of({{130}, {7}});
    std::vector<float> memory(512);
    const base::ConstSlab slab = base::slab(base::View<float>(memory));
    const base::ConstSlab part = shard::part_of(slab, unit.parts[1]);
    EXPECT_EQ(part.data, slab.data + 4 * 256);
    EXPECT_EQ(part.n, 7);
    EXPECT_EQ(part.type, base::DType::f32);
    const base::ConstSlab half{slab.data, 512, base::DType::bf16};
    EXPECT_EQ(shard::part_of(half, unit.parts[1]).data, slab.data + 2 * 256);
    EXPECT_THROW(shard::part_of({slab.data, 262, base::DType::f32}, unit.parts[1]), base::Error);
    EXPECT_NO_THROW(shard::part_of({slab.data, 263, base::DType::f32}, unit.parts[1]));
}

TEST(ArenaPlanTest, units_lie_back_to_back_in_both_arenas) {
    const std::vector<UnitSpec> units = {unit_of({{300}}), unit_of({{1000}}), unit_of({{1}})};
    const ArenaPlan plan(units, 3); // parts of 128, 384 and 128 elements
    ASSERT_EQ(plan.units.size(), 3U);
    EXPECT_EQ(plan.units[0].in_shard_arena, 0);
    EXPECT_EQ(plan.units[1].in_shard_arena, 128);
    EXPECT_EQ(plan.units[2].in_shard_arena, 512);
    EXPECT_EQ(plan.shard_elements, 640);
    EXPECT_EQ(plan.units[0].in_whole_arena, 0);
    EXPECT_EQ(plan.units[1].in_whole_arena, 384);
    EXPECT_EQ(plan.units[2].in_whole_arena, 1536);
    EXPECT_EQ(plan.whole_elements, 1920);
    EXPECT_EQ(plan.largest_unit, 1152);
    EXPECT_EQ(plan.units[1].layout.padded(), 1152);
}

TEST(ArenaPlanTest, parts_and_slots_begin_at_multiples_that_a_device_asks_for) {
    const std::vector<UnitSpec> units = {unit_of({{300}}), unit_of({{9000}}), unit_of({{1}})};
    for (int ranks = 1; ranks <= 5; ++ranks) {
        const ArenaPlan plan(units, ranks, 1024);
        base::Elements end = 0;
        for (const auto& place : plan.units) {
            EXPECT_EQ(place.in_shard_arena % 1024, 0);
            EXPECT_GE(place.in_shard_arena, end);
            EXPECT_EQ(place.in_whole_arena, ranks * place.in_shard_arena);
            end = place.in_shard_arena + place.layout.per_rank();
            EXPECT_GE(plan.largest_unit, place.layout.padded());
            EXPECT_GE(plan.largest_part, place.layout.per_rank());
        }
        EXPECT_GE(plan.shard_elements, end);
        EXPECT_EQ(plan.whole_elements, ranks * plan.shard_elements);
        EXPECT_EQ(plan.largest_unit % 1024, 0);
        EXPECT_EQ(plan.largest_part % 1024, 0);
    }
}

TEST(ArenaPlanTest, arenas_hold_the_same_elements_for_any_number_of_ranks) {
    std::vector<UnitSpec> units;
    for (std::int64_t n = 1; n < 3000; n = 2 * n + 3) {
        units.push_back(unit_of({{n, 3}, {n}}));
    }
    for (int ranks = 1; ranks <= 9; ++ranks) {
        const ArenaPlan plan(units, ranks);
        base::Elements in_shard = 0;
        base::Elements in_whole = 0;
        for (const auto& place : plan.units) {
            ASSERT_EQ(place.in_shard_arena, in_shard);
            ASSERT_EQ(place.in_whole_arena, in_whole);
            ASSERT_LE(place.layout.padded(), plan.largest_unit);
            in_shard += place.layout.per_rank();
            in_whole += place.layout.padded();
        }
        EXPECT_EQ(plan.shard_elements, in_shard);
        EXPECT_EQ(plan.whole_elements, in_whole);
        EXPECT_EQ(plan.whole_elements, ranks * plan.shard_elements);
    }
}
