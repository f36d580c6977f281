// SPDX-License-Identifier: Apache-2.0
// What counts as slow, and how ranks that are slow are told together.
#include <cstring>

#include <gtest/gtest.h>

#include <foregather/mesh/at_work.hpp>

#include "../../../src/mesh/slow_notes.hpp"

using namespace foregather;

namespace {

// Steps of 0.2 s from 0 s on; returns when the last ended.
double take_steps(mesh::AtWork& at_work, int n) {
    for (int step = 1; step <= n; ++step) {
        at_work.begin("step", step, 0.2 * (step - 1));
    }
    at_work.end(0.2 * n);
    return 0.2 * n;
}

mesh::SlowReport report(int rank, const std::string& doing, double silence = 0) {
    mesh::SlowReport one{};
    one.rank = rank;
    one.seconds = 2.5;
    one.median = 0.2;
    one.silence_s = silence;
    one.at = mesh::place_of({"step", 11, doing});
    one.before = mesh::place_of({"step", 11, "waiting"});
    return one;
}

} // namespace

TEST(AtWorkTest, a_step_beyond_ten_medians_is_slow_once_while_it_lasts) {
    mesh::AtWork at_work;
    const double begin = take_steps(at_work, 10);
    at_work.begin("step", 11, begin);
    at_work.doing("gather of layer.1", begin + 1);
    EXPECT_FALSE(at_work.slow(begin + 1.9));
    at_work.doing("gather of layer.2", begin + 2.1);
    at_work.doing("later", begin + 2.2);
    const auto slow = at_work.slow(begin + 2.3);
    ASSERT_TRUE(slow);
    EXPECT_EQ(slow->work.name(), "step 11");
    EXPECT_EQ(slow->work.doing, "gather of layer.2") << "when the limit was over";
    EXPECT_NEAR(slow->median, 0.2, 1e-9);
    EXPECT_FALSE(slow->over);
    at_work.end(begin + 5);
    EXPECT_FALSE(at_work.slow(begin + 6)) << "told already";
}

TEST(AtWorkTest, a_slow_step_that_nobody_saw_is_told_when_it_is_over) {
    mesh::AtWork at_work;
    const double begin = take_steps(at_work, 10);
    at_work.begin("step", 11, begin);
    at_work.begin("step", 12, begin + 2.1);
    const auto slow = at_work.slow(begin + 2.1);
    ASSERT_TRUE(slow);
    EXPECT_EQ(slow->work.number, 11);
    EXPECT_TRUE(slow->over);
}

TEST(AtWorkTest, too_few_steps_short_ones_and_other_work_are_not_slow) {
    mesh::AtWork few;
    const double begin = take_steps(few, 9);
    few.begin("step", 10, begin);
    EXPECT_FALSE(few.slow(begin + 100));
    mesh::AtWork quick;
    for (int step = 0; step < 20; ++step) {
        quick.begin("step", step, 0.001 * step);
    }
    EXPECT_FALSE(quick.slow(0.02 + 0.9)) << "less than a second";
    quick.begin("save", 1, 1);
    EXPECT_FALSE(quick.slow(100)) << "the first of its kind";
}

TEST(AtWorkTest, the_process_says_what_it_has_in_hand) {
    EXPECT_EQ(mesh::AtWork::of_process(), "");
    mesh::AtWork at_work;
    at_work.begin("save", 4, 0);
    EXPECT_EQ(mesh::AtWork::of_process(), "save 4");
}

TEST(SlowNotesTest, ranks_that_do_the_same_are_told_together_once_all_have_reported) {
    mesh::SlowNotes notes({"rank 0 (a)", "rank 1 (a)", "rank 2 (b)", "rank 3 (b)"});
    for (const int rank : {0, 3, 2}) {
        notes.add(report(rank, "gather of layer.1"), 10);
    }
    EXPECT_TRUE(notes.due(10.5).empty());
    notes.add(report(1, "compute of layer.1"), 10.5);
    const auto told = notes.due(10.5);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0], "step 11 has lasted 2.5 s by now, the median is 0.2 s; ranks 0, 2, 3: "
                       "gather of layer.1; rank 1 (a): compute of layer.1");
    EXPECT_TRUE(notes.due(20).empty());
}

TEST(SlowNotesTest, a_silent_rank_is_told_by_the_one_after_it_and_again_when_it_is_heard_of) {
    mesh::SlowNotes notes({"rank 0 (a)", "rank 1 (a)", "rank 2 (b)"});
    notes.add(report(0, "gather of layer.1"), 10);
    notes.add(report(2, "gather of layer.1", 1.5), 10);
    const auto told = notes.due(12.1);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_NE(told[0].find("rank 1 (a): silent for 3.6 s, last in step 11, waiting"),
              std::string::npos)
        << told[0];
    mesh::SlowReport back = report(1, "compute of layer.1");
    back.at.number = 10; // it had not come as far
    back.stood_still_s = 4;
    notes.add(back, 14);
    const auto again = notes.due(14);
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0],
              "step 11: rank 1 (a) is heard of again: in step 10, compute of layer.1, after its "
              "process stood still for 4.0 s");
}

TEST(SlowNotesTest, a_run_that_is_slow_all_the_time_is_not_told_for_ever) {
    mesh::SlowNotes notes({"rank 0 (a)"});
    std::vector<std::string> all;
    for (int step = 0; step < 100; ++step) {
        mesh::SlowReport one = report(0, "waiting");
        one.at.number = 2 * step;
        notes.add(one, step);
        for (auto& note : notes.due(step)) {
            all.push_back(std::move(note));
        }
    }
    ASSERT_EQ(all.size(), 21U);
    EXPECT_EQ(all.back(), "more slow steps and saves are not told");
}
