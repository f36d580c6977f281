// SPDX-License-Identifier: Apache-2.0
// What a bench makes of turns that are known: played in time by the replay, with a contention and a
// number of tokens that it must find again.
#include "../../../src/job/bench_figures.hpp"

#include <gtest/gtest.h>

#include "../../../src/job/bench_results.hpp"

namespace foregather::job {
namespace {

constexpr int layers = 10;

class BenchFiguresTest : public ::testing::Test {
protected:
    BenchFiguresTest() {
        for (int u = 0; u < layers; ++u) {
            shard::UnitSpec unit;
            unit.name = "layer." + std::to_string(u);
            unit.append("weight." + std::to_string(u), {256}, 0, 256);
            chain.units.push_back(unit);
            chain.uses.push_back({u, model::Role::layer, u});
        }
        plan.depths = {0, 1, 2};
        plan.tokens = {512};
        plan.transports = {mpi};
        plan.sections.bench.pairs = 6;
    }

    // `share`: a gather's length / a compute's, which is 1 ms of 512 tokens.
    static schedule::PassTimes times(double share, double tokens) {
        schedule::PassTimes t;
        t.compute.assign(layers, 1e-3 * tokens / 512);
        t.gather.assign(layers, 1e-3 * share);
        for (auto* of_units : {&t.reduce, &t.replica, &t.optimizer}) {
            of_units->assign(layers, 0);
        }
        return t;
    }
    // Of two ranks: rank 1 computes a little longer, and waits in gathers for nobody.
    std::vector<std::vector<Turn>> turns(const schedule::PassTimes& alone,
                                         const schedule::Contention& contention) const {
        std::vector<std::vector<Turn>> ranks(2);
        for (std::int64_t round = 0; round < plan.sections.bench.pairs; ++round) {
            for (const int depth : plan.depths) {
                const schedule::Replayed r =
                    schedule::replay(step_plan(facts(), depth), alone, contention);
                Turn turn;
                turn.round = round;
                turn.depth = depth;
                turn.step = r.step * (1 + 1e-4 * static_cast<double>(round % 3));
                const schedule::ReplayedDirection& d = r.directions[0];
                turn.sides[0] = {d.gather, d.compute, d.exposed, d.overlapped, layers};
                ranks[1].push_back(turn);
                turn.sides[0].gather += 1e-3;
                turn.sides[0].compute *= 0.99;
                ranks[0].push_back(turn);
            }
        }
        return ranks;
    }
    ConfigurationFigures judged(double share, const schedule::Contention& contention,
                                std::int64_t tokens = 512) const {
        const schedule::PassTimes alone = times(share, static_cast<double>(tokens));
        BenchPack pack;
        pack.tokens = tokens;
        return judge_turns(facts(), 0, mpi, pack, turns(alone, contention), {alone, alone}, alone);
    }
    BenchFacts facts() const { return {plan, chain, 2, base::DType::f32}; }

    Transport mpi{"mpi", ""};
    model::Chain chain;
    BenchPlan plan;
};

TEST_F(BenchFiguresTest, figures_are_of_the_rank_that_computed_longest) {
    const ConfigurationFigures c = judged(0.9, {});
    EXPECT_EQ(c.slowest_rank, 1);
    ASSERT_EQ(c.depths.size(), 3U);
    const SideFigures& ahead = c.find(1)->sides[0];
    EXPECT_NEAR(ahead.compute, layers * 1e-3, 1e-9);
    EXPECT_NEAR(ahead.gather, layers * 0.9e-3, 1e-9);
    EXPECT_NEAR(ahead.gathered_bytes, layers * 1024, 0);
    EXPECT_NEAR(ahead.tax(), 0, 1e-9);
    EXPECT_NEAR(c.find(1)->algorithm_bandwidth(false), layers * 1024 / (layers * 0.9e-3), 1);
}

TEST_F(BenchFiguresTest, without_contention_a_step_is_its_limit_and_a_deep_one_its_bound) {
    const ConfigurationFigures c = judged(0.9, {});
    for (const DepthFigures& d : c.depths) {
        EXPECT_NEAR(d.step / d.limit, 1, 2e-4);
        EXPECT_NEAR(d.predicted / d.limit, 1, 1e-9);
    }
    EXPECT_NEAR(c.find(0)->limit / c.find(0)->bound, 1.9, 1e-6);
    EXPECT_NEAR(c.find(2)->limit / c.find(2)->bound, 1, 1e-6);
    EXPECT_NEAR(c.find(1)->ratio.median, 1 / 1.9, 1e-3);
    EXPECT_TRUE(c.find(1)->ratio.differs());
}

TEST_F(BenchFiguresTest, the_contention_of_the_turns_is_found_again) {
    for (const double share : {0.4, 0.8, 1.5}) {
        const ConfigurationFigures c = judged(share, {0.25, 0.1});
        EXPECT_NEAR(c.contention.compute, 0.25, 0.01) << share;
        EXPECT_NEAR(c.contention.collective, 0.1, 0.01) << share;
        EXPECT_NEAR(c.find(1)->predicted / c.find(1)->step, 1, 0.01) << share;
    }
}

TEST_F(BenchFiguresTest, the_recommended_depth_hides_gathers_that_fit_and_costs_no_slot_for_none) {
    const ConfigurationFigures fits = judged(0.8, {});
    const Recommendation one = recommend(facts(), fits, {&fits});
    EXPECT_EQ(one.depth, 1);
    EXPECT_TRUE(one.hidden);
    EXPECT_EQ(one.slots, 2);
    EXPECT_NEAR(one.gain, 1 / 1.8, 0.01);
    const ConfigurationFigures nothing = judged(0.001, {});
    EXPECT_EQ(recommend(facts(), nothing, {&nothing}).depth, 0);
}

// Gathers take 1.5 ms, computes 1 ms for 512 tokens: they are as long at 768.
TEST_F(BenchFiguresTest, gathers_are_hidden_from_the_tokens_at_which_computes_are_as_long) {
    const ConfigurationFigures c = judged(1.5, {});
    const Recommendation r = recommend(facts(), c, {&c});
    EXPECT_FALSE(r.hidden);
    EXPECT_EQ(r.depth, 1);
    EXPECT_TRUE(r.proportional);
    EXPECT_GT(r.tokens, 740);
    EXPECT_LE(r.tokens, 780);
    const ConfigurationFigures twice = judged(1.5, {}, 1024);
    const Recommendation both = recommend(facts(), c, {&c, &twice});
    EXPECT_FALSE(both.proportional);
    EXPECT_NEAR(static_cast<double>(both.tokens), static_cast<double>(r.tokens), 12);
}

// Each rank is slow at other units: a mixture of their longest times belongs to none.
TEST_F(BenchFiguresTest, a_limit_is_replayed_with_the_times_of_the_rank_that_is_shown) {
    const schedule::PassTimes even = times(0.5, 512);
    std::vector<schedule::PassTimes> own(2, even);
    schedule::PassTimes longest = even;
    for (std::size_t use = 0; use < layers; ++use) {
        own[use % 2].compute[use] = longest.compute[use] = 3e-3;
    }
    longest.between = own[1].between = 2e-3;
    BenchPack pack;
    pack.tokens = 512;
    const ConfigurationFigures c =
        judge_turns(facts(), 0, mpi, pack, turns(own[1], {}), own, longest);
    ASSERT_EQ(c.slowest_rank, 1);
    for (const DepthFigures& d : c.depths) {
        const SideFigures& f = d.sides[0];
        EXPECT_NEAR(f.compute_alone, 20e-3, 1e-9);
        EXPECT_NEAR(d.between_alone, 2e-3, 1e-9);
        EXPECT_NEAR(d.step / d.limit, 1, 2e-4) << "nothing was slower than the rank alone";
        EXPECT_NEAR(d.predicted / d.limit, 1, 1e-6);
        EXPECT_NEAR(d.bound, f.compute_alone, 1e-9);
    }
    // All in turn, but for the next pass's first gather beside what is between passes.
    const DepthFigures& zero = *c.find(0);
    EXPECT_NEAR(zero.limit,
                zero.sides[0].compute_alone + zero.sides[0].gather_alone + zero.between_alone -
                    own[1].gather.front(),
                1e-9);
}

TEST_F(BenchFiguresTest, a_recommendation_says_what_to_run_with) {
    const ConfigurationFigures c = judged(1.5, {});
    const Recommendation r = recommend(facts(), c, {&c});
    EXPECT_EQ(r.options, "--fsdp.forward_prefetch=1 --batch.tokens=" + std::to_string(r.tokens));
    const ConfigurationFigures fits = judged(0.8, {});
    EXPECT_EQ(recommend(facts(), fits, {&fits}).options, "--fsdp.forward_prefetch=1");
}

TEST_F(BenchFiguresTest, where_all_units_stay_there_is_no_bandwidth_and_no_number_of_tokens) {
    plan.depths = {0, layers - 1};
    const ConfigurationFigures c = judged(1.5, {});
    EXPECT_FALSE(c.find(0)->resident);
    EXPECT_TRUE(c.find(layers - 1)->resident);
    ConfigurationFigures within = c;
    plan.depths = {0, 4}; // of five units
    chain.units.resize(5);
    chain.uses.resize(5);
    for (auto* times :
         {&within.alone.own.compute, &within.alone.own.gather, &within.alone.own.reduce,
          &within.alone.own.replica, &within.alone.own.optimizer}) {
        times->resize(5);
    }
    const Recommendation r = recommend(facts(), within, {&within});
    EXPECT_EQ(r.depth, 4);
    EXPECT_TRUE(r.resident);
    EXPECT_EQ(r.tokens, 0);
    EXPECT_EQ(r.options, "--fsdp.forward_prefetch=4");
}

TEST_F(BenchFiguresTest, a_recommendation_that_was_measured_otherwise_says_so) {
    ConfigurationFigures c = judged(0.8, {});
    EXPECT_EQ(recommend(facts(), c, {&c}).doubt, "");
    c.depths[1].ratio = {1.1, 1.05, 1.15};
    EXPECT_EQ(recommend(facts(), c, {&c}).doubt,
              "measured otherwise: its step took 1.100 x (1.050 to 1.150) that of depth 0");
    c.depths[1].ratio = paired_ratio({1.1}, {1}, 0);
    EXPECT_EQ(recommend(facts(), c, {&c}).doubt,
              "measured otherwise: its step took 1.100 x (of too "
              "few rounds to be sure) that of depth 0");
    c.depths[1].ratio = paired_ratio({0.6}, {1}, 0);
    EXPECT_EQ(recommend(facts(), c, {&c}).doubt, "") << "0.556 predicted";
    ConfigurationFigures none = judged(0.001, {});
    none.depths[2].ratio = {0.8, 0.7, 0.9};
    EXPECT_EQ(recommend(facts(), none, {&none}).doubt,
              "measured otherwise: depth 2 took 0.800 x (0.700 to 0.900) that of depth 0");
}

TEST_F(BenchFiguresTest, the_comparison_tells_before_after_and_what_follows) {
    const ConfigurationFigures c = judged(0.8, {0.25, 0});
    const ComparisonTable table = comparison_of(c, recommend(facts(), c, {&c}), false);
    EXPECT_EQ(table.before_depth, 0);
    EXPECT_EQ(table.after_depth, 1);
    std::vector<std::string> said;
    for (const ComparisonRow& row : table.rows) {
        said.push_back(row.quantity);
        if (row.quantity == "forward as a whole") {
            EXPECT_NEAR(row.before, layers * 1.8e-3, 1e-6);
        }
        if (row.quantity == "perfect overlap without tax") {
            EXPECT_NEAR(row.after, layers * 1e-3 + 0.8e-3, 1e-6);
        }
    }
    EXPECT_EQ(said, (std::vector<std::string>{"forward gather", "forward exposed",
                                              "forward compute", "step", "forward as a whole",
                                              "perfect overlap without tax", "hidden", "tax",
                                              "share of the hidden time lost to the tax"}));
}

TEST_F(BenchFiguresTest, the_order_of_turns_is_drawn_anew_for_each_round_and_seed) {
    int changes = 0;
    for (std::int64_t round = 0; round < 20; ++round) {
        const auto order = order_of_turns(3, 5, round);
        EXPECT_EQ(order, order_of_turns(3, 5, round));
        changes += order != order_of_turns(3, 5, round + 1) ? 1 : 0;
    }
    EXPECT_GT(changes, 10);
}

} // namespace
} // namespace foregather::job
