// SPDX-License-Identifier: Apache-2.0
// What parts of a pass take alone, measured on the real backend over a link of known rate: the same
// numbers on every rank, gathers as long as their bytes say, one slot, and a run's own source and
// reducer as if nothing had been measured.
#include "../../../src/job/alone.hpp"

#include <algorithm>
#include <gtest/gtest.h>

#include "../../../src/job/score_rehearsal.hpp"
#include "../../../src/job/train_rehearsal.hpp"
#include "../../support/mpi_test.hpp"
#include "../../unit/deck/good_deck.hpp"

namespace foregather::job {
namespace {

const std::string config_text = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 256, "max_position_embeddings": 64, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
    "torch_dtype": "float32", "attention_bias": false, "mlp_bias": false})";

constexpr double link_rate = 20e6; // bytes/s

// One document of `tokens` tokens.
PackInputs pack_of(std::int32_t tokens) {
    PackInputs in;
    in.offsets = {0, tokens};
    for (std::int32_t t = 0; t < tokens; ++t) {
        in.ids.push_back(t % 256);
        in.positions.push_back(t);
        if (t + 1 < tokens) {
            in.rows.push_back(t);
            in.targets.push_back((t + 1) % 256);
        }
    }
    return in;
}

class AloneTest : public ::testing::Test {
protected:
    AloneTest()
        : deck(deck::test::parsed(deck::test::training_deck,
                                  {"--comm.transport=mpi", "--device.kind=host",
                                   "--comm.link_rate=20MB/s", "--device.threads=1"})),
          topology(0, "mesh.shard"), control(topology.world()),
          backend(backend::open(deck.sections().device, "device.kind", topology, control)) {
        inputs.config = model::parse_config(config_text, "a test");
        inputs.chain = model::make_chain(inputs.config, {0});
        inputs.items.longest = 64;
        needs = backend::needs_of("host", 1);
    }

    // Seconds that the rate alone makes of a gather of this unit; of a reduction as many.
    double least_s(std::size_t unit, const shard::ArenaPlan& plan) const {
        const double bytes = static_cast<double>(
            base::bytes_of(plan.units[unit].layout.padded(), base::DType::f32).count);
        return bytes * (topology.size() - 1) / topology.size() / link_rate;
    }
    void expect_like_the_link(const std::vector<double>& times,
                              const shard::ArenaPlan& plan) const {
        ASSERT_EQ(times.size(), inputs.chain.units.size());
        for (std::size_t u = 0; u < times.size(); ++u) {
            EXPECT_GE(times[u], 0.99 * least_s(u, plan)) << "unit " << u;
            EXPECT_LE(times[u], 1.5 * least_s(u, plan) + 0.004) << "unit " << u;
        }
    }
    bool same_everywhere(const schedule::PassTimes& times) const {
        bool same = true;
        for (const auto* some :
             {&times.compute, &times.gather, &times.reduce, &times.replica, &times.optimizer}) {
            for (const double one : *some) {
                for (const double other : control.gather(one)) {
                    same = same && one == other;
                }
            }
        }
        return same;
    }

    deck::Deck deck;
    mesh::Topology topology;
    mesh::Control control;
    std::unique_ptr<backend::Backend> backend;
    TrainInputs inputs;
    backend::Needs needs;
    Transport transport{"mpi", ""};
};

TEST_F(AloneTest, a_forward_pass_is_measured_with_one_slot_and_ranks_agree) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const shard::ArenaPlan plan =
        arena_plan(inputs.chain, topology.size(), needs, base::DType::f32);
    device::Device& device = backend->device();
    WeightsHome home(inputs.chain, transport, topology, *backend, deck.sections().comm,
                     {plan, base::DType::f32, 1, false});
    model::Transformer transformer(inputs.config, inputs.chain, device,
                                   {64, 64, base::DType::f32, {}, 1});
    const auto compute = device.stream("compute", device::Priority::normal);
    ScoreRehearsal rehearsal({*backend, transformer, inputs.config, inputs.chain, *compute}, {}, 64,
                             1);
    rehearsal.take(pack_of(64));
    AloneMeter meter({rehearsal, home, control}, true);
    const int allocations = device.allocations();
    meter.measure(2);
    meter.measure(1); // adds to it
    EXPECT_EQ(device.allocations(), allocations);
    const Alone alone = meter.times();
    EXPECT_TRUE(same_everywhere(alone.agreed));
    expect_like_the_link(alone.agreed.gather, plan);
    ASSERT_EQ(alone.agreed.compute.size(), inputs.chain.uses.size());
    for (std::size_t use = 0; use < alone.own.compute.size(); ++use) {
        EXPECT_GT(alone.own.compute[use], 0);
        EXPECT_GE(alone.agreed.compute[use], alone.own.compute[use]);
    }
    EXPECT_EQ(alone.agreed.reduce, std::vector<double>(inputs.chain.units.size(), 0.0));
}

// With a trainer of one slot, whose weights and moments hold known values.
class TrainingAloneTest : public AloneTest {
protected:
    TrainingAloneTest()
        : plan(arena_plan(inputs.chain, topology.size(), needs, base::DType::f32)),
          work{deck.sections(), inputs, 1, topology.size()} {
        work.needs = needs;
        schedule = plan_training_pass(deck, inputs.chain, plan, transport, base::DType::f32);
        schedule.slots = 1;
        schedule.plan.forward_depth = schedule.plan.backward_depth = 0;
        if (topology.size() > 1) {
            trainer = std::make_unique<Trainer>(Trainer::Parts{
                deck.sections(), inputs, topology, control, *backend, transport, schedule, work});
            each([](base::View<float> values, bool weights) {
                for (std::size_t i = 0; i < values.size(); ++i) {
                    values[i] = known(i, weights);
                }
            });
            trainer->publish();
        }
    }

    static float known(std::size_t i, bool weights) {
        return 0.001F * static_cast<float>((i + (weights ? 1 : 2)) % 17);
    }
    void each(const std::function<void(base::View<float>, bool weights)>& use) {
        for (base::UnitId unit = 0; unit < units(); ++unit) {
            use(trainer->optimizer().weights(unit), true);
            use(trainer->optimizer().first_moment(unit), false);
            use(trainer->optimizer().second_moment(unit), false);
        }
    }
    std::int64_t changed(bool of_weights) {
        std::int64_t wrong = 0;
        each([&](base::View<float> values, bool weights) {
            for (std::size_t i = 0; weights == of_weights && i < values.size(); ++i) {
                wrong += values[i] != known(i, weights);
            }
        });
        return wrong;
    }
    base::UnitId units() const { return static_cast<base::UnitId>(inputs.chain.units.size()); }
    std::unique_ptr<TrainRehearsal> rehearse(TrainRehearsal::Ending ending) {
        auto rehearsal = std::make_unique<TrainRehearsal>(
            TrainRehearsal::Parts{*trainer, deck.sections().train, control, *backend},
            schedule.plan, 64, ending);
        rehearsal->take(pack_of(64));
        return rehearsal;
    }

    shard::ArenaPlan plan;
    TrainWork work;
    TrainSchedule schedule;
    std::unique_ptr<Trainer> trainer;
};

TEST_F(TrainingAloneTest, a_step_of_training_is_measured_and_leaves_weights_and_moments) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const auto rehearsal = rehearse(TrainRehearsal::Ending::leave);
    AloneMeter meter({*rehearsal, trainer->home(), control}, true);
    meter.measure(2);
    const schedule::PassTimes times = meter.times().agreed;
    EXPECT_TRUE(same_everywhere(times));
    expect_like_the_link(times.gather, plan);
    expect_like_the_link(times.reduce, plan);
    EXPECT_EQ(times.replica, std::vector<double>(times.reduce.size(), 0.0));
    for (const auto* some : {&times.compute, &times.optimizer}) {
        for (const double seconds : *some) {
            EXPECT_GT(seconds, 0);
        }
    }
    EXPECT_GT(times.between, 0);
    EXPECT_EQ(changed(true), 0);
    EXPECT_EQ(changed(false), 0);
}

TEST_F(TrainingAloneTest, the_runs_own_source_and_reducer_go_on_as_if_nothing_had_been_measured) {
    if (tests::fewer_than(2)) {
        GTEST_SKIP() << "needs 2 ranks";
    }
    const auto rehearsal = rehearse(TrainRehearsal::Ending::leave);
    AloneMeter({*rehearsal, trainer->home(), control}, true).measure(1);
    schedule::GradientReducer& reducer = trainer->reducer();
    const auto played = rehearsal->play({trainer->source(), &reducer}, 3, [](std::int64_t) {});
    ASSERT_EQ(played.size(), 3U);
    EXPECT_EQ(reducer.figures().reductions,
              3 * static_cast<std::int64_t>(inputs.chain.uses.size()));
    EXPECT_EQ(trainer->source().figures(schedule::Direction::forward).gathers, 3 * units());
    for (std::size_t step = 1; step < 3; ++step) {
        EXPECT_GT(played[step].step, played[step].between + played[step].optimizer);
    }
    EXPECT_EQ(changed(false), 0);
    // Updates that are made leave the weights as they are, and the moments not.
    const auto updated = rehearse(TrainRehearsal::Ending::update)
                             ->play({trainer->source(), &reducer}, 6, [](std::int64_t) {});
    for (const Rehearsal::StepSeconds& step : updated) {
        EXPECT_GT(step.optimizer, 0); // how long is noise: the toy's update takes microseconds
    }
    EXPECT_EQ(changed(true), 0);
    EXPECT_GT(changed(false), 0);
}

} // namespace
} // namespace foregather::job
