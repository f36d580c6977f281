// SPDX-License-Identifier: Apache-2.0
// Rows of a training run in its results file: laid out at the start, there after a flush, whole
// when it is finished, taken over by a run that goes on.
#include <mpi.h>

#include "../../../src/job/train_results.hpp"
#include "../../unit/io/results_fixture.hpp"
#include "../../unit/job/documents_fixture.hpp"

namespace foregather::io {
namespace {

using namespace testing;
using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

LossHistory steps(std::int64_t first, std::int64_t last) {
    LossHistory rows;
    for (std::int64_t s = first; s <= last; ++s) {
        const auto x = static_cast<double>(s);
        rows.step.push_back(s);
        rows.loss.push_back(s == 2 ? nan : 5.0 / x);
        rows.gradient_norm.push_back(s == 2 ? std::numeric_limits<double>::infinity() : x);
        rows.learning_rate.push_back(1e-3 * x);
        rows.tokens.push_back(10 * s);
    }
    return rows;
}

RunStart start(const std::string& when, std::int64_t steps_before) {
    return {when, 2, 0, "foregather t.deck", steps_before};
}

class TrainResultsTest : public ::testing::Test {
protected:
    std::unique_ptr<ResultsFile> open(const std::vector<RunStart>& starts, bool replace = false,
                                      std::int64_t items = 8) const {
        return std::make_unique<ResultsFile>(control, Output{path, replace, "training"},
                                             std::nullopt, std::vector<Table>{starts_table(starts)},
                                             std::vector<Text>{}, std::nullopt,
                                             TrainLayout{4, 2, items});
    }
    void by_first(const std::function<void()>& work) const {
        if (control.first()) {
            work();
        }
    }

    const mesh::Control control{MPI_COMM_WORLD};
    const SharedDirectory directory{control};
    const std::string path = directory / "r.h5", part = path + ".part";
};

// NaN is itself.
void expect_same(const Doubles& a, const Doubles& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << i;
    }
}

TEST_F(TrainResultsTest, rows_are_laid_out_before_the_first_step) {
    const auto file = open({start("now", 0)});
    for (const char* column : {"/train/step", "/train/tokens"}) {
        EXPECT_EQ(all_of<std::int64_t>(part, column), Ints(4, -1));
    }
    for (const char* column : {"/train/loss", "/train/gradient_norm", "/train/learning_rate"}) {
        expect_same(all_of<double>(part, column), Doubles(4, nan));
    }
    EXPECT_EQ(all_of<std::int64_t>(part, "/evaluation/step"), Ints(2, -1));
    EXPECT_EQ(all_of<std::int64_t>(part, "/evaluation/tokens"), Ints(2, -1));
    expect_same(all_of<double>(part, "/evaluation/loss"), Doubles(2, nan));
    for (const char* column : {"step", "document", "window"}) {
        EXPECT_EQ(all_of<std::int64_t>(part, std::string("/train/items/") + column), Ints(8, -1));
    }
    EXPECT_EQ(string_attribute(part, "/train/loss", "units"), "nat");
    EXPECT_EQ(string_attribute(part, "/train/tokens", "units"), "token");
    EXPECT_GE(file->bytes_written(), control.first() ? bytes_of(TrainLayout{4, 2, 8}).count : 0);
    EXPECT_EQ(bytes_of(TrainLayout{4, 2, 8}).count, (5 * 4 + 3 * 2 + 3 * 8) * 8);
    control.barrier();
}

TEST_F(TrainResultsTest, rows_are_there_after_a_flush_and_when_it_is_finished) {
    const auto file = open({start("now", 0)});
    by_first([&] {
        file->write_steps(0, steps(1, 2));
        file->write_evaluations(0, {{2}, {3.5}, {77}});
        file->write_items(0, {{1, 1, 2}, {5, 3, 0}, {0, 1, 0}});
    });
    file->flush();
    expect_same(all_of<double>(part, "/train/loss"), {5.0, nan, nan, nan});
    EXPECT_EQ(read_earlier(part).steps.step, (Ints{1, 2}));
    control.barrier();
    by_first([&] { file->write_steps(2, steps(3, 4)); });
    file->finish(std::nullopt, {}, {});
    EXPECT_EQ(all_of<std::int64_t>(path, "/train/step"), (Ints{1, 2, 3, 4}));
    EXPECT_EQ(all_of<std::int64_t>(path, "/train/tokens"), (Ints{10, 20, 30, 40}));
    expect_same(all_of<double>(path, "/train/gradient_norm"), steps(1, 4).gradient_norm);
    expect_same(all_of<double>(path, "/train/learning_rate"), steps(1, 4).learning_rate);
    EXPECT_EQ(all_of<std::int64_t>(path, "/evaluation/step"), (Ints{2, -1}));
    expect_same(all_of<double>(path, "/evaluation/loss"), {3.5, nan});
    EXPECT_EQ(all_of<std::int64_t>(path, "/train/items/document"),
              (Ints{5, 3, 0, -1, -1, -1, -1, -1}));
    EXPECT_EQ(all_of<std::int64_t>(path, "/train/items/window")[1], 1);
    EXPECT_EQ(number_attribute(path, "/", "complete"), 1.0);
    control.barrier();
}

TEST_F(TrainResultsTest, rows_without_a_place_are_refused) {
    const auto file = open({start("now", 0)}, false, 0);
    by_first([&] {
        const auto failed = base::Status::failed;
        expect_error(failed, {part, "/train/loss", "4 rows", "row 3"},
                     [&] { file->write_steps(3, steps(4, 5)); });
        expect_error(failed, {"/train/items", "was not laid out"}, [&] {
            file->write_items(0, {{1}, {1}, {1}});
        });
        LossHistory torn = steps(1, 2);
        torn.tokens.pop_back();
        expect_error(failed, {"/train/tokens"}, [&] { file->write_steps(0, torn); });
    });
    control.barrier();
}

// Six documents, two of them a step.
struct Data {
    const job::Documents documents{Ints{3, 4, 5, 6, 7, 8}};
    const job::Items items = job::make_items(documents.file(), 0, 0, 100);
    job::DataOrder order{items, 3, true, {2, 0, 0}};
    const job::ItemPlan plan = job::plan_items(order, 4);
};

// Takes steps 1 to 3 and is killed; gives the state after step 2, when a checkpoint was saved.
TrainingState run_and_leave(ResultsFile& file, Data& data, bool writes) {
    TrainingState state;
    job::Position at;
    for (std::int64_t s = 1; s <= 3; ++s) {
        const job::Batch batch = data.order.batch(at);
        if (writes) {
            file.write_items(data.plan.first[static_cast<std::size_t>(s - 1)],
                             job::item_rows(data.items, batch, s));
        }
        at = batch.after;
        if (s == 2) {
            state.step = s;
            state.epoch = at.epoch;
            state.place = at.place;
        }
    }
    if (writes) {
        file.write_steps(0, steps(1, 3));
    }
    file.flush();
    state.history = steps(1, 2);
    state.evaluations = {{1}, {4.5}, {9}};
    return state;
}

TEST(ItemPlan, tells_where_the_items_of_a_step_stand_unless_there_are_too_many) {
    Data data;
    EXPECT_EQ(data.plan.first, (Ints{0, 2, 4, 6, 8}));
    EXPECT_EQ(data.plan.rows(), 8);
    EXPECT_FALSE(job::plan_items(data.order, 4, 7).stored());
    EXPECT_EQ(job::plan_items(data.order, 4, 7).rows(), 0);
}

TEST_F(TrainResultsTest, starts_are_taken_over_from_a_file_with_the_same_steps_alone) {
    Data data;
    const TrainingState state = run_and_leave(*open({start("first", 0)}), data, control.first());
    by_first([&] {
        const auto starts = job::earlier_starts({path, false, ""}, state.history);
        ASSERT_EQ(starts.size(), 1U);
        EXPECT_EQ(starts[0].started, "first");
        EXPECT_EQ(job::earlier_starts({path, false, ""}, {}).size(), 0U);
        LossHistory other = state.history;
        other.loss[0] += 1e-12;
        EXPECT_EQ(job::earlier_starts({path, false, ""}, other).size(), 0U);
    });
    control.barrier();
}

// g3: what the steps took is told, and a run that goes on tells all of it.
TEST_F(TrainResultsTest, run_that_goes_on_takes_over_rows_items_and_starts) {
    Data data;
    const TrainingState state = run_and_leave(*open({start("first", 0)}), data, control.first());
    const Ints taken = all_of<std::int64_t>(part, "/train/items/document");
    control.barrier();
    const std::vector<RunStart> starts{start("first", 0), start("second", 2)};
    const auto file = open(starts);
    by_first([&] {
        EXPECT_EQ(job::write_before(*file, state, data.order, data.items, data.plan), "");
        file->write_steps(2, steps(3, 4));
    });
    file->finish(std::nullopt, {runs_table(starts)}, {});
    by_first([&] {
        EXPECT_EQ(all_of<std::int64_t>(path, "/train/step"), (Ints{1, 2, 3, 4}));
        EXPECT_EQ(all_of<std::int64_t>(path, "/evaluation/step"), (Ints{1, -1}));
        Ints expected = taken; // of steps 1 and 2; the others were dropped
        EXPECT_GE(expected[4], 0);
        std::fill(expected.begin() + 4, expected.end(), -1);
        EXPECT_EQ(all_of<std::int64_t>(path, "/train/items/document"), expected);
        EXPECT_EQ(all_of<std::int64_t>(path, "/train/items/step"),
                  (Ints{1, 1, 2, 2, -1, -1, -1, -1}));
        const Earlier earlier = read_earlier(path);
        ASSERT_EQ(earlier.unusable, "");
        ASSERT_EQ(earlier.starts.size(), 2U);
        EXPECT_EQ(earlier.starts[1].steps_before, 2);
        EXPECT_EQ(all_of<std::int64_t>(path, "/provenance/runs/steps_before"), (Ints{0, 2}));
        EXPECT_EQ(job::earlier_starts({path, false, ""}, state.history).size(), 2U);
    });
    control.barrier();
}

TEST_F(TrainResultsTest, items_of_steps_before_are_left_out_when_the_order_was_another) {
    Data data;
    TrainingState state;
    state.step = 2;
    state.history = steps(1, 2);
    state.place = 3; // of batches of another size
    const auto file = open({start("now", 2)});
    by_first(
        [&] { EXPECT_NE(job::write_before(*file, state, data.order, data.items, data.plan), ""); });
    file->flush();
    EXPECT_EQ(all_of<std::int64_t>(part, "/train/step"), (Ints{1, 2, -1, -1}));
    EXPECT_EQ(all_of<std::int64_t>(part, "/train/items/document"), Ints(8, -1));
    control.barrier();
}

} // namespace
} // namespace foregather::io
