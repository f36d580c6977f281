// SPDX-License-Identifier: Apache-2.0
// What a memory plan says of a device that has memory of its own, and what is refused before
// anything is loaded. The sizes of real runs are compared by the field tests.
#include <string>

#include <gtest/gtest.h>

#include <foregather/base/error.hpp>

#include "../../../src/job/memory_plan.hpp"
#include "../../../src/job/settle.hpp"
#include "../deck/good_deck.hpp"
#include "../model/configs.hpp"

namespace foregather::job {
namespace {

using deck::test::good_deck;

class MemoryPlanTest : public testing::Test {
protected:
    MemoryPlanTest() {
        packs_.most_tokens = packs_.most_rows = packs_.longest = 100;
        packs_.most_windows = 1;
    }
    MemoryPlan plan(int ranks, bool apart, bool offload) const {
        const backend::Needs needs{{4096}, apart ? 256 : 1, {1 << 20}, !apart, {}};
        const std::string gathers = apart ? "nccl" : "mpi";
        const Transport transport{ranks > 1 ? gathers
                                  : offload ? host_memory_transport
                                            : "none",
                                  ""};
        return plan_memory(config_, chain_, ranks, transport, 1,
                           {packs_, asked_, 1, base::DType::bf16, needs, offload});
    }
    static base::Bytes row(const MemoryPlan& plan, const std::string& name) {
        for (const MemoryPlan::Row& r : plan.rows) {
            if (r.name == name) {
                return r.bytes - r.on_host;
            }
        }
        return {-1};
    }

    model::ModelConfig config_ = model::parse_config(model::config_text(), "f");
    model::Chain chain_ = model::make_chain(config_, {0});
    PackPlan packs_;
    deck::ScoreSection asked_;
};

std::string refusal(const std::function<void()>& work) {
    try {
        work();
    } catch (const base::Error& error) {
        EXPECT_EQ(error.status(), base::Status::refused);
        return error.what();
    }
    return "";
}

TEST_F(MemoryPlanTest, OffloadedWeightsAreOnTheDeviceInTwoStagesAndSlotsAlone) {
    const MemoryPlan resident = plan(2, true, false), offloaded = plan(2, true, true);
    EXPECT_GT(row(resident, "weights").count, 0);
    EXPECT_EQ(row(resident, "stages").count, -1);
    EXPECT_EQ(row(offloaded, "weights").count, 0);
    const backend::Needs needs{{4096}, 256, {}, false, {}};
    EXPECT_EQ(row(offloaded, "stages").count,
              2 * 2 * arena_plan(chain_, 2, needs, base::DType::bf16).largest_part);
    EXPECT_EQ(row(offloaded, "slots"), row(resident, "slots"));
    const MemoryPlan alone = plan(1, true, true);
    EXPECT_EQ(row(alone, "stages").count, -1) << "copies go straight into slots";
    EXPECT_GT(row(alone, "slots").count, 0);
}

TEST_F(MemoryPlanTest, ArenasKeepTheAlignmentThatIsAskedFor) {
    for (const base::DType type : {base::DType::f32, base::DType::bf16}) {
        const auto arena = arena_plan(chain_, 3, {{4096}, 256, {}, false, {}}, type);
        for (const auto& place : arena.units) {
            EXPECT_EQ(base::bytes_of(place.in_shard_arena, type).count % 4096, 0);
        }
        EXPECT_EQ(base::bytes_of(arena.largest_unit, type).count % 4096, 0);
        EXPECT_EQ(base::bytes_of(arena.largest_part, type).count % 4096, 0);
    }
}

TEST_F(MemoryPlanTest, WhatADeviceCannotHoldIsRefusedWithTheNumbers) {
    const MemoryPlan p = plan(2, true, false);
    EXPECT_LT(p.on_device().count, p.total().count);
    const auto judged = [&](std::int64_t memory) {
        return refusal([&] { refuse_beyond_device(p, {"cuda", "A GPU", 1, "", {memory}}); });
    };
    EXPECT_EQ(judged(p.on_device().count), "");
    EXPECT_EQ(judged(0), "") << "unknown";
    const std::string said = judged(p.on_device().count - 1);
    EXPECT_NE(said.find("A GPU has " + in_words(p.on_device())), std::string::npos) << said;
    EXPECT_NE(said.find("\n  slots: "), std::string::npos) << said;
    EXPECT_EQ(said.find("load staging"), std::string::npos) << said;
}

TEST_F(MemoryPlanTest, AGroupFitsADeviceByTheDevicesMemory) {
    const auto smallest = [&](std::int64_t device_memory, std::int64_t node_memory) {
        const Work work{
            packs_, asked_, 1, base::DType::bf16, {{4096}, 256, {}, false, {device_memory}}, false};
        return smallest_group_that_fits(config_, chain_, 8, 8, 1, work, 8, {node_memory});
    };
    EXPECT_EQ(smallest(std::int64_t{1} << 40, 1), 1) << "a node's memory does not matter";
    EXPECT_EQ(smallest(0, std::int64_t{1} << 40), 0) << "unknown";
    EXPECT_EQ(smallest(1000, std::int64_t{1} << 40), 0);
}

TEST_F(MemoryPlanTest, OneRankWithWeightsInHostMemoryCopiesThem) {
    const deck::Deck deck = deck::test::parsed(good_deck);
    const GroupFacts one{1, true, 1, {0}, "/dev/shm"};
    EXPECT_EQ(choose_transport(deck, "nccl", false, one, {1}, true).name, "host memory");
    EXPECT_EQ(choose_transport(deck, "nccl", false, one, {1}, false).name, "none");
    EXPECT_TRUE(moves({host_memory_transport, ""}));
}

TEST(Offload, IsRefusedWhereWeightsAreInHostMemoryAlready) {
    const deck::Deck deck = deck::test::parsed(good_deck + "[fsdp]\noffload = params\n");
    EXPECT_EQ(refusal([&] { choose_offload(deck, backend::Needs{}); }),
              "score.deck:12: fsdp.offload = params: they are there already, since the host "
              "computes; use fsdp.offload = none, or device.kind = cuda");
    EXPECT_TRUE(choose_offload(deck, {{1}, 1, {}, false, {}}));
    EXPECT_FALSE(choose_offload(deck::test::parsed(good_deck), backend::Needs{}));
}

TEST(SettleKind, KeysOfTheHostAreInertElsewhereAndThoseOfOthersOnIt) {
    const deck::Deck deck = deck::test::parsed(good_deck);
    const auto inert = [&](const std::string& kind) {
        deck::Ledger ledger(deck);
        settle_kind(ledger, kind);
        std::string keys;
        for (const auto& row : ledger.rows()) {
            const bool own = row.state == "inert" && deck::known_key(row.key).serves("score");
            keys += own ? row.key + ": " + row.reason + "\n" : "";
        }
        return keys;
    };
    EXPECT_EQ(inert("cuda"), "device.threads: the host computes nothing: device.kind = cuda\n"
                             "device.products: the host computes nothing: device.kind = cuda\n");
    EXPECT_EQ(inert("host"),
              "device.tf32: the host multiplies fp32 as it is: device.kind = host\n");
}

TEST_F(MemoryPlanTest, WhatNoNodeHoldsIsToldWithTheNumbers) {
    const backend::Needs host{{4096}, 1, {1 << 20}, true, {}};
    const MemoryPlan of_two = plan(2, false, false);
    const base::Bytes needed = 2 * of_two.total();
    EXPECT_EQ(memory_in_node(of_two, 2, host, needed).note(), "");
    EXPECT_EQ(memory_in_node(of_two, 2, host, needed - base::Bytes{1}).note(),
              "memory plan: 2 ranks on a node: " + in_words(needed) + "; this node has " +
                  in_words(needed - base::Bytes{1}) + ": that does not fit a node like this one");
    const backend::Needs apart{{4096}, 256, {1 << 20}, false, {}};
    const MemoryPlan on_device = plan(2, true, false);
    EXPECT_LT(memory_in_node(on_device, 1, apart, needed).of_rank, on_device.total())
        << "what a device of its own holds is no node's";
}

TEST(ReportWords, AHostIsToldByItsThreadsAndAnotherDeviceByNameAndAddress) {
    EXPECT_EQ(in_words(device::Facts{"host", "A CPU", 3}), "3 threads per rank");
    EXPECT_EQ(in_words(device::Facts{"host", "A CPU", 1}), "1 thread per rank");
    EXPECT_EQ(in_words(device::Facts{"cuda", "A GPU", 1, "0000:3b:00.0 GPU-1", {}}),
              "A GPU at 0000:3b:00.0 GPU-1 (rank 0's)");
}

} // namespace
} // namespace foregather::job
