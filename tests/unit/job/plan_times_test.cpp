// SPDX-License-Identifier: Apache-2.0
// Times of a described machine, by hand: operations and bytes of a small model, where groups lie,
// what rings take, rooflines; and that described passes are the run's own.
#include <cmath>

#include <gtest/gtest.h>

#include "../../../src/job/plan_inputs.hpp"
#include "../../../src/job/plan_times.hpp"
#include "../../../src/job/report_parts.hpp"

namespace foregather::job::test {
namespace {

using base::DType;

// C 4, F 8, H 2, K 1, D 2, V 10, L 2: q 4 x 4, k and v 2 x 4, o 4 x 4, three of 8 x 4.
constexpr const char* config_json =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 10,
        "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 2, "max_position_embeddings": 100,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": false,
        "mlp_bias": false, "tie_word_embeddings": false})";
constexpr double matrices = 16 + 8 + 8 + 16 + 3 * 32; // of a layer: 144

PlannedModel small(bool trains) {
    PlannedModel model;
    model.config = model::parse_config(config_json, "config.json");
    model.chain = model::make_chain(model.config, {});
    model.trains = trains;
    return model;
}

UseWork forward(const model::ChainUse& use, const Load& load) {
    const PlannedModel model = small(false);
    return forward_work(model.config, model.chain, use, load);
}

const model::ChainUse lookup{0, model::Role::embedding, 0}, layer{1, model::Role::layer, 0},
    head{3, model::Role::head, 0};

TEST(PlanWork, CountsThePairsThatAttentionSees) {
    EXPECT_EQ(attended_pairs({10, 10}, 0), 55); // 10 x 11 / 2
    EXPECT_EQ(attended_pairs({10, 4}, 0), 23);  // 10 + 10 + 3
    EXPECT_EQ(attended_pairs({10, 99}, 0), 55); // no longer than the pack
    EXPECT_EQ(attended_pairs({10, 10}, 4), 34); // 10 + 6 x 4
    EXPECT_EQ(attended_pairs({10, 3}, 4), 19);  // 6 + 6 + 6 + 1
}

TEST(PlanWork, OfForwardByHand) {
    const Load load{10, 10, DType::bf16};
    const UseWork of_layer = forward(layer, load);
    EXPECT_EQ(of_layer.product_flop, 2 * matrices * 10);
    // Weights; x of q, k, v, o, gate, up (4) and o, down (4, 8) as bf16; y as fp32.
    const double in = 4 + 4 + 4 + 4 + 4 + 4 + 8, out = 4 + 2 + 2 + 4 + 8 + 8 + 4;
    EXPECT_EQ(of_layer.product_bytes, 2 * matrices + 10 * (2 * in + 4 * out));
    EXPECT_EQ(of_layer.attention_flop, 4 * 4 * 55);
    EXPECT_EQ(of_layer.attention_bytes, 10 * (4 * (4 + 2 + 2) + 2 * 4));
    EXPECT_EQ(of_layer.other_bytes, 10 * (2 * 6 * 4 + 8 * 6 + 10 * 8));
    EXPECT_EQ(forward(head, load).product_flop, 2 * 10 * 4 * 10);
    EXPECT_EQ(forward(lookup, load).flop(), 0);
    EXPECT_EQ(forward(lookup, load).other_bytes, 10 * 6 * 4);
}

TEST(PlanWork, AddsUpToTheOperationsThatARunReports) {
    for (const base::Elements tokens : {7, 64}) {
        const PlannedModel model = small(false);
        double flop = 0;
        for (const UseWork& work :
             work_of_pass(model.config, model.chain, {tokens, tokens}, false)) {
            flop += work.flop();
        }
        const auto t = static_cast<double>(tokens);
        EXPECT_NEAR(flop, forward_flop(model.config, t, t * (t + 1), t), 1e-9 * flop);
    }
}

TEST(PlanWork, BackwardIsTwiceForwardAndRecomputesLayers) {
    const PlannedModel model = small(true);
    Load load{10, 10, DType::f32};
    const UseWork once = forward(layer, load);
    const auto backward = [&](const model::ChainUse& use) {
        return backward_work(model.config, model.chain, use, load);
    };
    EXPECT_EQ(backward(layer).product_flop, 3 * once.product_flop);
    EXPECT_EQ(backward(layer).attention_flop, 3.5 * once.attention_flop);
    EXPECT_EQ(backward(head).product_flop, 3 * forward(head, load).product_flop);
    load.recompute = false;
    EXPECT_EQ(backward(layer).product_flop, 2 * once.product_flop);
    EXPECT_EQ(backward(layer).attention_flop, 2.5 * once.attention_flop);
    EXPECT_EQ(backward(head).product_flop, 3 * forward(head, load).product_flop);
    EXPECT_EQ(backward(lookup).flop(), 0);
}

TEST(PlanWork, ProductsComputeWholeMultiplesOfRows) {
    EXPECT_EQ(forward(layer, {10, 10, DType::bf16, 256}).product_flop, 2 * matrices * 256);
    EXPECT_EQ(forward(layer, {10, 10, DType::bf16, 256}).attention_flop, 4 * 4 * 55);
}

TEST(PlanLinks, KnowWhereGroupsLie) {
    EXPECT_EQ(shard_group(64, 8, 8), (Group{8, 1, 8}));
    EXPECT_EQ(shard_group(64, 64, 8), (Group{64, 8, 8}));
    EXPECT_EQ(shard_group(64, 2, 8), (Group{2, 1, 2}));
    EXPECT_EQ(shard_group(24, 12, 8), (Group{12, 2, 4})); // the first has 8 + 4
    EXPECT_EQ(shard_group(4, 4, 8), (Group{4, 1, 4}));
    EXPECT_EQ(replica_group(64, 8, 8), (Group{8, 8, 1})); // one of each node
    EXPECT_EQ(replica_group(64, 4, 8), (Group{16, 8, 2}));
    EXPECT_EQ(replica_group(64, 64, 8), (Group{1, 1, 1}));
    EXPECT_EQ(replica_group(8, 2, 8), (Group{4, 1, 4}));
}

TEST(PlanLinks, RingsByHand) {
    const Links links{8, 400e9, 2e-6, 50e9, 8e-6};
    EXPECT_EQ(bus_bandwidth({8, 1, 8}, links), 400e9);
    EXPECT_EQ(bus_bandwidth({64, 8, 8}, links), 400e9); // 8 cards of 50 GB/s
    EXPECT_EQ(bus_bandwidth({16, 8, 2}, links), 100e9);
    EXPECT_DOUBLE_EQ(ring_latency({8, 1, 8}, links), 7 * 2e-6);
    EXPECT_DOUBLE_EQ(ring_latency({64, 8, 8}, links), 56 * 2e-6 + 7 * 8e-6);
    EXPECT_DOUBLE_EQ(all_gather_seconds({800000000}, {8, 1, 8}, links), 14e-6 + 1.75e-3);
    EXPECT_DOUBLE_EQ(all_reduce_seconds({800000000}, {8, 1, 8}, links), 28e-6 + 3.5e-3);
    EXPECT_EQ(all_gather_seconds({800000000}, {1, 1, 1}, links), 0);
}

TEST(PlanTimes, AreTheRooflineOfEachKindOfWork) {
    Machine machine;
    machine.product = 100;
    machine.attention = 50;
    machine.memory_bandwidth = 10;
    EXPECT_EQ(seconds_of({1000, 50, 0, 0, 0}, machine), 10);  // bound by operations
    EXPECT_EQ(seconds_of({1000, 500, 0, 0, 0}, machine), 50); // by memory
    EXPECT_EQ(seconds_of({1000, 50, 100, 5, 20}, machine), 10 + 2 + 2);
}

TEST(PlanTimes, OfCollectivesAndTheOptimizerByHand) {
    const PlannedModel model = small(true);
    Machine machine;
    machine.product = machine.attention = 1e12;
    machine.memory_bandwidth = 1e9;
    machine.links = {4, 1e6, 0, 5e5, 0};
    machine.step_gap = 0.25;
    const shard::ArenaPlan arena(model.chain.units, 2);
    const base::Elements padded = arena.units[1].layout.padded();
    const auto n = static_cast<double>(padded);
    const schedule::PassTimes times =
        times_on(machine, model, arena, {8, 2, {10, 10, DType::bf16}}, DType::bf16);
    ASSERT_EQ(times.compute.size(), 2 * model.chain.uses.size());
    EXPECT_DOUBLE_EQ(times.gather[1], 2 * n / 2 / 1e6);
    EXPECT_DOUBLE_EQ(times.reduce[1], 2 * n / 2 / 1e6 + (n / 2 * (2 + 8) + n * 6) / 1e9);
    // 4 copies, 2 of them on each node: fp32 over 1 MB/s of two cards, there and back.
    EXPECT_DOUBLE_EQ(times.replica[1], 2 * (4 * n / 2) * 3 / 4 / 1e6);
    EXPECT_DOUBLE_EQ(times.optimizer[1], n / 2 * (28 + 4 + 2) / 1e9);
    EXPECT_EQ(times.between, 0.25);
}

TEST(PlanTimes, OfOneRankAddWhatIsNotTheFirstGradientOfAStep) {
    const PlannedModel model = small(true);
    Machine machine;
    machine.product = machine.attention = 1e12;
    machine.memory_bandwidth = 1e9;
    const shard::ArenaPlan arena(model.chain.units, 1);
    const auto reduce = [&](std::int64_t passes) {
        return times_on(machine, model, arena, {1, 1, {10, 10, DType::f32}}, DType::f32, passes)
            .reduce[1];
    };
    const auto n = static_cast<double>(arena.units[1].layout.padded());
    EXPECT_EQ(reduce(1), 0);
    EXPECT_DOUBLE_EQ(4 * reduce(4), 3 * 12 * n / 1e9);
}

TEST(PlanTimes, AreNoBetterKnownThanTheLeastOfTheirSources) {
    EXPECT_EQ(worse("measured", "published"), "published");
    EXPECT_EQ(worse("assumed", "fitted"), "assumed");
    EXPECT_EQ(worse("", "measured"), "measured");
}

} // namespace
} // namespace foregather::job::test
