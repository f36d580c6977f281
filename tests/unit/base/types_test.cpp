// SPDX-License-Identifier: Apache-2.0
// Counts of bytes and elements, ranges, slabs and errors do the little arithmetic they promise.
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>
#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>

using namespace foregather;
using base::Bytes;

TEST(BytesTest, add_subtract_and_multiply_beyond_32_bits) {
    constexpr std::int64_t big = 5'000'000'000;
    EXPECT_EQ((Bytes{big} + Bytes{7}).count, big + 7);
    EXPECT_EQ((Bytes{7} - Bytes{big}).count, 7 - big);
    EXPECT_EQ((3 * Bytes{big}).count, 15'000'000'000);
    Bytes sum{1};
    sum += Bytes{big};
    EXPECT_EQ(sum, Bytes{big + 1});
}

TEST(BytesTest, compare_by_count) {
    EXPECT_LT(Bytes{-1}, Bytes{0});
    EXPECT_GT(Bytes{5'000'000'000}, Bytes{4'999'999'999});
    EXPECT_EQ(Bytes{3}, Bytes{3});
    EXPECT_NE(Bytes{3}, Bytes{4});
}

TEST(BytesTest, never_pass_for_elements) {
    EXPECT_FALSE((std::is_convertible_v<Bytes, base::Elements>));
    EXPECT_FALSE((std::is_convertible_v<base::Elements, Bytes>));
}

TEST(BytesTest, of_elements_follow_the_element_type) {
    EXPECT_EQ(base::bytes_of(3, base::DType::f32), Bytes{12});
    EXPECT_EQ(base::bytes_of(3, base::DType::f16), Bytes{6});
    EXPECT_EQ(base::bytes_of(3'000'000'000, base::DType::bf16), Bytes{6'000'000'000});
}

TEST(ShapeTest, elements_multiply_extents_and_a_scalar_has_one) {
    EXPECT_EQ(base::elements_of({70'000, 70'000}), 4'900'000'000);
    EXPECT_EQ(base::elements_of({}), 1);
    EXPECT_EQ(base::elements_of({5, 0, 3}), 0);
}

TEST(RangeTest, size_and_emptiness) {
    EXPECT_EQ((base::Range{3, 10}).size(), 7);
    EXPECT_FALSE((base::Range{3, 4}).empty());
    EXPECT_TRUE((base::Range{4, 4}).empty());
    EXPECT_TRUE((base::Range{5, 4}).empty());
}

TEST(SlabTest, a_part_steps_by_the_element_size) {
    std::vector<float> values = {0, 1, 2, 3, 4, 5};
    const base::Slab whole = base::slab(base::View<float>(values));
    EXPECT_EQ(whole.n, 6);
    EXPECT_EQ(whole.bytes(), Bytes{24});
    const base::Slab part = whole.part(2, 3);
    EXPECT_EQ(part.n, 3);
    EXPECT_EQ(part.f32()[0], 2.0F);
    EXPECT_EQ((base::Slab{whole.data, 12, base::DType::bf16}.part(4, 2).data - whole.data), 8);
}

TEST(ErrorTest, carries_status_message_and_the_place_it_was_raised) {
    try {
        base::refuse("mend your deck");
    } catch (const base::Error& error) {
        EXPECT_EQ(error.status(), base::Status::refused);
        EXPECT_STREQ(error.what(), "mend your deck");
        EXPECT_NE(std::string(error.where().file).find("types_test.cpp"), std::string::npos);
        EXPECT_GT(error.where().line, 0);
    }
    EXPECT_THROW(base::fail("work had begun"), base::Error);
    try {
        base::fail("work had begun");
    } catch (const base::Error& error) {
        EXPECT_EQ(error.status(), base::Status::failed);
    }
}
