// SPDX-License-Identifier: Apache-2.0
// What is told of a training run, from made-up figures of its ranks: the table, the lines on the
// way, the tables of /timing and the spans of both directions.
#include "../../../src/job/train_report.hpp"

#include <limits>

#include "../../../src/job/span_table.hpp"
#include "../../support/mpi_test.hpp"
#include "../../unit/deck/good_deck.hpp"

namespace foregather::job {
namespace {

using Ints = std::vector<std::int64_t>;
using Strings = std::vector<std::string>;
using schedule::Direction;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

schedule::PrefetchFigures prefetch(schedule::Verdict verdict, std::int64_t gathers,
                                   double exposed_s) {
    schedule::PrefetchFigures f;
    f.verdict = verdict;
    f.gathers = gathers;
    f.ahead_gathers = gathers - 1;
    f.computes = gathers;
    f.exposed_gathers = 2;
    f.issued_ahead = 1;
    f.exposed_s = exposed_s;
    f.overlapped_s = 0.5;
    f.gather_s = exposed_s + 0.5;
    f.compute_s = 3;
    return f;
}

// Two ranks, whatever the number of the job's: the figures are made up.
std::vector<RankFigures> two_ranks() {
    std::vector<RankFigures> ranks(2);
    for (std::size_t r = 0; r < 2; ++r) {
        RankFigures& f = ranks[r];
        const double more = static_cast<double>(r);
        take(f, prefetch(schedule::Verdict::observed, 40, 0.25 + more));
        take(f,
             prefetch(r == 0 ? schedule::Verdict::observed : schedule::Verdict::not_observed, 30,
                      2.0),
             Direction::backward);
        take(f, schedule::ReduceFigures{60, 12, 4.0, 3.0, 1.0, 7, {1 << 20}});
        f.seconds[phase_run] = 10 + more;
        f.seconds[phase_evaluate] = 1;
        f.packs = 8;
        f.tokens = 500;
        f.scored = 490;
        f.train.steps = 4;
        f.train.passes = 8;
        f.train.attended = 5e4;
    }
    return ranks;
}

class TrainReportTest : public ::testing::Test {
protected:
    TrainReportTest() {
        config.layers = 2;
        config.heads = 2;
        config.kv_heads = 1;
        config.head_dim = 4;
        config.width = 8;
        config.ffn = 16;
        config.vocabulary = 32;
        chain.units.resize(2);
        chain.units[0].name = "embedding.0";
        chain.units[1].name = "layer.0";
        memory.slots = 2;
        memory.slot_bytes = {1 << 20};
        schedule.forward.units = 1;
        schedule.backward.units = 3;
        state.step = 4;
        state.history = {{1, 2, 3, 4},
                         {5.0, nan, 3.5, 4.0},
                         {0.5, 1.0, 2.0, 1.5},
                         {1e-3, 1e-3, 1e-3, 1e-3},
                         {10, 10, 10, 10}};
        state.evaluations = {{2, 4}, {4.25, 4.75}, {77, 77}};
    }
    TrainFacts facts() const {
        const std::vector<RankFigures> ranks = two_ranks();
        return {deck,
                config,
                chain,
                topology,
                transport,
                "host",
                "asked for",
                "products",
                {"host", "a processor", 1},
                base::DType::f32,
                base::DType::bf16,
                memory,
                schedule,
                ranks,
                judge_run(ranks),
                judge_run(ranks, Direction::backward),
                "random weights",
                state,
                1,
                {2.0, 1.0, 4.0},
                {{"/c/step-00000002.h5", "", 1.0, {}, {1 << 20}},
                 {"/c/step-00000004.h5", "", 2.0, {}, {1 << 20}}},
                0.75};
    }
    static void expect_lines(const std::string& text, const Strings& lines) {
        for (const std::string& line : lines) {
            EXPECT_NE(text.find(line), std::string::npos) << "no \"" << line << "\" in:\n" << text;
        }
    }

    const deck::Deck deck = deck::test::parsed(deck::test::training_deck);
    const mesh::Topology topology{0, "mesh.shard"};
    const Transport transport{"mpi", "asked for"};
    model::ModelConfig config;
    model::Chain chain;
    MemoryPlan memory;
    TrainSchedule schedule;
    io::TrainingState state;
};

TEST_F(TrainReportTest, tells_what_users_ask_for) {
    const std::string text = train_report(facts(), {"mind the gap"});
    expect_lines(
        text,
        {"---- train: ", "began      random weights\n",
         "forward compute           40     3.000     3.000     3.000     0",
         "exposed backward           2     2.000     2.000     2.000     0",
         "exposed reduce             7     3.000",
         "prefetch forward depth 1, 2 slots of 1.0 MiB: observed\n",
         "40 gathers a rank, 39 ahead; exposed 0.750 s, overlapped 0.500 s",
         "prefetch backward depth 3, 2 slots of 1.0 MiB: not observed",
         "reduce     as bf16: 60 a rank in its shard group, 12 over replicas, 2.0 MiB from other",
         "exposed 3.000 s, overlapped 1.000 s (means)",
         // 1000 tokens of two ranks in 11 - 1 seconds
         "speed      3 steps, 1000 tokens, 10.000 s: 100.0 tokens/s",
         "a step 2.000 s (median), 4.000 s the longest",
         "loss       5.000000 nat at step 1, 4.000000 at step 4", "lowest 3.500000 at step 3",
         "norm       1.5 (median), 2 the largest", "2 of 3 steps clipped to 1\n",
         "not applied  loss or norm was not finite: steps 2\n",
         "evaluation 4.750000 nat at step 4 over 77 tokens; 2 in all, the lowest 4.250000 at step "
         "2",
         "saved      2 checkpoints of 1.0 MiB, 1.500 s each (mean)",
         "the last /c/step-00000004.h5\n", "note       mind the gap\n"});
    const auto advice = train_advice(facts());
    ASSERT_EQ(advice.size(), 2U); // of 10 s: backward waits 2, reductions 3, forward 0.75
    expect_lines(advice[0] + advice[1], {"20 % of the steps wait for backward gathers",
                                         "30 % of the steps wait for reductions"});
}

TEST_F(TrainReportTest, run_without_a_step_says_so) {
    TrainFacts none = facts();
    io::TrainingState empty;
    none.step_seconds.clear();
    none.saved.clear();
    none.forward = none.backward = {};
    for (RankFigures& r : none.ranks) {
        r = {};
    }
    expect_lines(train_report(none, {}),
                 {"prefetch forward inert: no step was left", "0 steps, 0 tokens",
                  "saved      nothing: checkpoint.directory is not set"});
    EXPECT_TRUE(train_advice(none).empty());
    EXPECT_EQ(train_tokens_per_second(none), 0);
}

TEST_F(TrainReportTest, tables_have_a_row_a_direction_and_what_was_reduced) {
    const auto tables = train_timing_tables(facts());
    const auto column = [&](const std::string& path, const std::string& name) {
        for (const io::Table& table : tables) {
            for (const io::Column& one : table.columns) {
                if (table.path == path && one.name == name) {
                    return one.values;
                }
            }
        }
        ADD_FAILURE() << "no column " << name << " in " << path;
        return decltype(io::Column::values){};
    };
    const std::string p = "/timing/prefetch";
    EXPECT_EQ(std::get<Strings>(column(p, "direction")), (Strings{"forward", "backward"}));
    EXPECT_EQ(std::get<Ints>(column(p, "depth")), (Ints{1, 3}));
    EXPECT_EQ(std::get<Ints>(column(p, "gathers")), (Ints{40, 30}));
    EXPECT_EQ(std::get<std::vector<double>>(column(p, "exposed_s")),
              (std::vector<double>{0.75, 2.0}));
    EXPECT_EQ(std::get<Ints>(column("/timing/ranks", "bytes_reduced")), (Ints{1 << 20, 1 << 20}));
    EXPECT_EQ(std::get<Ints>(column("/timing/ranks", "reductions")), (Ints{60, 60}));
    const auto names = std::get<Strings>(column("/timing/phases", "name"));
    EXPECT_EQ(names.size(), train_phases().size());
    EXPECT_NE(std::find(names.begin(), names.end(), "exposed reduce"), names.end());
}

TEST_F(TrainReportTest, figures_travel_whole_and_the_worst_verdict_of_a_direction_is_the_runs) {
    const mesh::Control control(MPI_COMM_WORLD);
    RankFigures mine = two_ranks()[0];
    mine.train.steps = 100 + control.rank();
    const auto all = gather_figures(control, mine);
    EXPECT_EQ(all.size(), control.first() ? static_cast<std::size_t>(control.size()) : 0U);
    for (std::size_t r = 0; r < all.size(); ++r) {
        EXPECT_EQ(all[r].train.steps, 100 + static_cast<std::int64_t>(r));
        EXPECT_EQ(all[r].backward.gathers, 30);
    }
    const RunPrefetch backward = judge_run(two_ranks(), Direction::backward);
    EXPECT_EQ(backward.verdict, schedule::Verdict::not_observed);
    EXPECT_EQ(backward.verdict_rank, 1);
    EXPECT_EQ(judge_run(two_ranks()).verdict, schedule::Verdict::observed);
}

TEST_F(TrainReportTest, spans_tell_step_direction_and_stream) {
    schedule::Span gather{schedule::SpanKind::gather, 3, 5, 1, 1, 100, 110, 120, {64}};
    gather.direction = Direction::backward;
    const schedule::Span compute{schedule::SpanKind::compute, 0, 1, 1, 0, 90, 100, 130, {}};
    schedule::Span reduce{schedule::SpanKind::reduce, 3, 2, 0, 1, 140, 150, 160, {32}};
    reduce.direction = Direction::backward;
    const auto step_of = [](std::int64_t pass) { return 1 + pass / 2; };
    const io::Table table =
        span_table({pack_spans({compute}, {10, 10, 0, 1000}, step_of) +
                        pack_spans({gather, reduce}, {10, 10, 0, 1000}, step_of),
                    pack_spans({compute}, {0, 0, 0, 1000})},
                   chain);
    const auto ints = [&](std::size_t i) { return std::get<Ints>(table.columns[i].values); };
    const auto strings = [&](std::size_t i) { return std::get<Strings>(table.columns[i].values); };
    EXPECT_EQ(ints(0), (Ints{0, 0, 0, 1}));
    EXPECT_EQ(ints(1), (Ints{1, 2, 2, 0})); // step; without a rule the pass
    EXPECT_EQ(ints(2), (Ints{0, 3, 3, 0}));
    EXPECT_EQ(strings(3), (Strings{"forward", "backward", "backward", "forward"}));
    EXPECT_EQ(strings(6), (Strings{"compute", "gather", "reduce", "compute"}));
    EXPECT_EQ(strings(7), (Strings{"compute", "gather", "reduce", "compute"}));
    EXPECT_EQ(ints(9), (Ints{10, 20, 60, 0})); // issued, from the first, on rank 0's clock
}

TEST(TrainLines, tell_a_step_an_evaluation_and_a_save) {
    StepFacts f;
    f.step = 12;
    f.loss = 3.21449;
    f.gradient_norm = 0.912;
    f.learning_rate = 3e-4;
    f.targets = 600;
    f.tokens = 617;
    f.seconds = 0.5;
    f.exposed_gather_s = 0.015;
    f.exposed_reduce_s = 0.005;
    EXPECT_EQ(step_line(f, 200, {412 << 20}),
              "step 12/200  loss 3.2145  norm 0.912  rate 3.00e-04  1234 tokens/s  exposed gather "
              "3 %, reduce 1 %  412.0 MiB");
    const auto object = step_object(f, {412 << 20});
    EXPECT_EQ(object["event"], "step");
    EXPECT_EQ(object["step"], 12);
    EXPECT_EQ(object["tokens"], 600);
    EXPECT_EQ(object["tokens_per_second"], 1234.0);
    EXPECT_EQ(object["peak_host_bytes"], 412 << 20);
    f.applied = false;
    f.loss = nan;
    EXPECT_NE(step_line(f, 200, {}).find("NOT APPLIED"), std::string::npos);
    EXPECT_NE(step_object(f, {}).dump().find("\"loss\":null"), std::string::npos);
    EXPECT_EQ(evaluation_line({12, 3.5, 77}, 200),
              "evaluation after step 12/200  loss 3.5000 over 77 tokens");
    EXPECT_EQ(evaluation_object({12, 3.5, 77})["tokens"], 77);
    EXPECT_EQ(save_line({"/c/step-00000012.h5", "", 1.5, {}, {9}}),
              "saved /c/step-00000012.h5 in 1.50 s");
    EXPECT_EQ(save_object({"/c/s.h5", "", 1.5, {}, {9}}, 12)["bytes"], 9);
}

} // namespace
} // namespace foregather::job
