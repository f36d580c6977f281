// SPDX-License-Identifier: Apache-2.0
// Lists and `auto`: what such values take, what they become, and what is refused in them.
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "../../../src/deck/convert.hpp"
#include "../../../src/deck/table.hpp"

namespace foregather::deck::test {
namespace {

const Rule depths = list_of_whole(0, 64);
const Rule transports = list_of("mpi shared nccl");
const Rule depth = whole_or_auto(0, 64);

TEST(Lists, BlanksAroundCommasMeanNothing) {
    EXPECT_EQ(cleaned(depths, "0, 1 ,2").canonical, "0,1,2");
    EXPECT_EQ(cleaned(transports, "shared,mpi").canonical, "shared,mpi");
}

TEST(Lists, AnEmptyValueIsAnEmptyList) {
    EXPECT_EQ(cleaned(depths, "").refusal, "");
    EXPECT_EQ(cleaned(depths, "").canonical, "");
}

TEST(Lists, AWrongEntryIsNamed) {
    EXPECT_EQ(cleaned(depths, "0, one").refusal,
              "takes whole numbers, 0 to 64, commas between, not \"one\"");
    EXPECT_EQ(cleaned(depths, "0, 65").refusal,
              "is out of range: it takes whole numbers, 0 to 64, commas between, not \"65\"");
    EXPECT_EQ(cleaned(transports, "mpi, tcp").refusal,
              "takes a list of mpi, shared, nccl, commas between, not \"tcp\"");
    for (const char* gap : {",", "0,", ",1", "0,,1", "0 1"}) {
        EXPECT_NE(cleaned(depths, gap).refusal, "") << gap;
    }
}

TEST(Lists, AnEntryThatComesTwiceIsRefused) {
    EXPECT_EQ(cleaned(depths, "1, 2, 01").refusal, "has \"01\" twice");
}

TEST(Lists, NoMoreEntriesThanAPersonWrites) {
    std::string list = "0";
    for (int i = 1; i < 64; ++i) {
        list += "," + std::to_string(i);
    }
    EXPECT_EQ(cleaned(depths, list).refusal, "");
    EXPECT_EQ(cleaned(depths, list + ",64").refusal, "has 65 entries; it takes at most 64");
}

TEST(Lists, AreWrittenAsADeckHoldsThem) {
    std::vector<std::int64_t> numbers{0, 1, 2};
    std::vector<std::string> words{"mpi", "shared"};
    EXPECT_EQ(written(depths, &numbers), "0, 1, 2");
    EXPECT_EQ(written(transports, &words), "mpi, shared");
}

TEST(Auto, IsAWordBesideTheNumbers) {
    int value = automatic;
    EXPECT_EQ(written(depth, &value), "auto");
    EXPECT_EQ(cleaned(depth, "auto").canonical, std::to_string(automatic));
    EXPECT_EQ(cleaned(depth, "3").canonical, "3");
    EXPECT_NE(cleaned(depth, "-1").refusal, "");
    EXPECT_NE(cleaned(depth, "Auto").refusal, "");
    EXPECT_NE(cleaned(whole(0, 64), "auto").refusal, "");
}

} // namespace
} // namespace foregather::deck::test
