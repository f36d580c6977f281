// SPDX-License-Identifier: Apache-2.0
// What the witness makes of runs written by hand: each figure and verdict is worked out in the
// test's own words. Quantiles and spans are in samples_test.cpp.
#include <vector>

#include <gtest/gtest.h>

#include <foregather/schedule/witness.hpp>

#include "records.hpp"

using namespace foregather;
using schedule::PrefetchFigures;
using schedule::UseRecord;
using schedule::Verdict;
using tests::figures_of;
using tests::ms;
using tests::PlannedRun;

namespace {
constexpr double exact = 1e-12; // of seconds
} // namespace

TEST(WitnessTest, perfect_overlap_exposes_the_first_gather_alone) {
    // Gather 0 at 0..5, compute 0 at 5..15, gather 1 at 5..10; then gather k+1 begins with compute
    // k.
    const auto records =
        PlannedRun{.depth = 1, .n = 10, .gather_ms = 5, .compute_ms = 10}.records();
    ASSERT_EQ(records[3].compute_begin, 35 * ms);
    ASSERT_EQ(records[3].gather_begin, 25 * ms);
    const PrefetchFigures f = figures_of(records, 1);
    EXPECT_EQ(f.verdict, Verdict::observed) << f.reason;
    EXPECT_EQ(f.requested, 1);
    EXPECT_EQ(f.issued_ahead, 1);
    EXPECT_EQ(f.judged, 9); // all but the run's last
    EXPECT_EQ(f.begun_ahead, 1);
    EXPECT_EQ(f.begun_share, 1);
    EXPECT_EQ(f.gathers, 10);
    EXPECT_EQ(f.ahead_gathers, 9);
    EXPECT_EQ(f.exposed_gathers, 1);
    EXPECT_EQ(f.computes, 10);
    EXPECT_FALSE(f.order_wrong);
    EXPECT_EQ(f.late_median_s, 0);
    EXPECT_EQ(f.late_p95_s, 0);
    EXPECT_NEAR(f.exposed_s, 0.005, exact);
    EXPECT_NEAR(f.overlapped_s, 0.045, exact);
    EXPECT_NEAR(f.gather_s, 0.050, exact);
    EXPECT_NEAR(f.compute_s, 0.100, exact);
}

TEST(WitnessTest, a_gather_longer_than_compute_is_exposed_by_the_difference) {
    // Gather 0 at 0..10, compute 0 at 10..14, gather 1 at 10..20: 6 ms idle, and so on: gather k+1
    // ends at 10 k + 20, compute k at 10 k + 14.
    const auto f =
        figures_of(PlannedRun{.depth = 1, .n = 10, .gather_ms = 10, .compute_ms = 4}.records(), 1);
    EXPECT_EQ(f.verdict, Verdict::observed) << f.reason;
    EXPECT_NEAR(f.exposed_s, 0.010 + 9 * 0.006, exact);
    EXPECT_EQ(f.exposed_gathers, 10);
    EXPECT_NEAR(f.overlapped_s, 9 * 0.004, exact);
}

TEST(WitnessTest, depth_two_counts_two_ahead) {
    // Three slots: gathers 0, 1, 2 at 0..15, compute 0 at 5..15 frees the slot of gather 3.
    const auto f =
        figures_of(PlannedRun{.depth = 2, .n = 12, .gather_ms = 5, .compute_ms = 10}.records(), 2);
    EXPECT_EQ(f.verdict, Verdict::observed) << f.reason;
    EXPECT_EQ(f.issued_ahead, 2);
    EXPECT_EQ(f.begun_ahead, 2);
    EXPECT_EQ(f.judged, 10); // all but the run's last two
    EXPECT_EQ(f.ahead_gathers, 11);
    EXPECT_NEAR(f.exposed_s, 0.005, exact);
}

TEST(WitnessTest, depth_zero_is_serial) {
    const auto records =
        PlannedRun{.depth = 0, .n = 10, .gather_ms = 5, .compute_ms = 10}.records();
    ASSERT_EQ(records[1].gather_begin, 15 * ms);
    const auto f = figures_of(records, 0);
    EXPECT_EQ(f.verdict, Verdict::observed) << f.reason;
    EXPECT_EQ(f.issued_ahead, 0);
    EXPECT_EQ(f.begun_ahead, 0);
    EXPECT_EQ(f.begun_share, 0);
    EXPECT_EQ(f.judged, 9);
    EXPECT_EQ(f.ahead_gathers, 0);
    EXPECT_NEAR(f.exposed_s, 0.050, exact);
    EXPECT_EQ(f.overlapped_s, 0);
}

TEST(WitnessTest, depth_zero_with_a_gather_begun_early_is_not_observed) {
    auto records = PlannedRun{.depth = 0, .n = 10}.records();
    records[4].gather_begin -= 1 * ms; // inside compute 3
    const auto f = figures_of(records, 0);
    EXPECT_EQ(f.verdict, Verdict::not_observed);
    EXPECT_NE(f.reason.find("before"), std::string::npos) << f.reason;
    EXPECT_FALSE(f.order_wrong) << "it is the clock that says so";
    EXPECT_NEAR(f.overlapped_s, 0.001, exact);
}

TEST(WitnessTest, depth_zero_with_a_gather_enqueued_early_names_the_use) {
    auto records = PlannedRun{.depth = 0, .n = 10}.records();
    std::swap(records[4].gather_sequence, records[3].compute_sequence);
    const auto f = figures_of(records, 0);
    EXPECT_EQ(f.verdict, Verdict::not_observed);
    EXPECT_NE(f.reason.find("use 4 was gathered before compute 3"), std::string::npos) << f.reason;
    EXPECT_TRUE(f.order_wrong);
}

TEST(WitnessTest, a_gather_enqueued_after_its_compute_names_the_use) {
    auto records = PlannedRun{.depth = 1, .n = 10}.records();
    std::swap(records[5].gather_sequence, records[4].compute_sequence); // gather 5 after compute 4
    const auto f = figures_of(records, 1);
    EXPECT_EQ(f.verdict, Verdict::not_observed);
    EXPECT_NE(f.reason.find("at use 4"), std::string::npos) << f.reason;
    EXPECT_TRUE(f.order_wrong);
    EXPECT_EQ(f.issued_ahead, 0) << "the least of all uses";
}

TEST(WitnessTest, a_gather_enqueued_too_far_ahead_names_the_use) {
    auto records = PlannedRun{.depth = 1, .n = 10}.records();
    std::swap(records[6].gather_sequence, records[4].compute_sequence); // gather 6 before compute 4
    const auto f = figures_of(records, 1);
    EXPECT_EQ(f.verdict, Verdict::not_observed);
    EXPECT_NE(f.reason.find("use 6 was gathered before compute 4"), std::string::npos) << f.reason;
}

TEST(WitnessTest, a_wrong_order_in_the_last_uses_is_seen_too) {
    auto records = PlannedRun{.depth = 2, .n = 10}.records();
    std::swap(records[9].gather_sequence,
              records[8].compute_sequence); // gather 9 not before compute 7
    const auto f = figures_of(records, 2);
    EXPECT_EQ(f.verdict, Verdict::not_observed);
    EXPECT_NE(f.reason.find("at use 7"), std::string::npos) << f.reason;
}

TEST(WitnessTest, gathers_that_begin_late_are_not_observed_although_the_order_is_right) {
    // Each gather begins 6 ms after it could, more than half of a compute of 10 ms, yet before its
    // end.
    const auto f = figures_of(PlannedRun{.depth = 1, .n = 10, .late_ms = 6}.records(), 1);
    EXPECT_EQ(f.begun_share, 1);
    EXPECT_NEAR(f.late_median_s, 0.006, exact);
    EXPECT_NEAR(f.late_p95_s, 0.006, exact);
    EXPECT_EQ(f.verdict, Verdict::not_observed);
    EXPECT_NE(f.reason.find("late"), std::string::npos) << f.reason;
}

TEST(WitnessTest, gathers_a_little_late_are_observed) {
    const auto f = figures_of(PlannedRun{.depth = 1, .n = 10, .late_ms = 4}.records(), 1);
    EXPECT_NEAR(f.late_median_s, 0.004, exact);
    EXPECT_EQ(f.verdict, Verdict::observed) << f.reason;
}

TEST(WitnessTest, gathers_that_begin_after_the_compute_they_should_hide_behind_are_not_observed) {
    // Enqueued in order, but begun only when the compute before is over.
    const auto f = figures_of(PlannedRun{.depth = 1, .n = 10, .late_ms = 11}.records(), 1);
    EXPECT_EQ(f.issued_ahead, 1);
    EXPECT_EQ(f.begun_share, 0);
    EXPECT_EQ(f.verdict, Verdict::not_observed);
    EXPECT_EQ(f.overlapped_s, 0);
}

TEST(WitnessTest, half_of_the_judged_uses_are_enough) {
    for (const int early : {4, 5}) { // of 9 judged uses
        auto records = PlannedRun{.depth = 1, .n = 10}.records();
        for (std::size_t k = 1; k < 10 - static_cast<std::size_t>(early); ++k) {
            records[k].gather_begin = records[k - 1].compute_end;
            records[k].gather_issued = records[k].gather_begin; // not late either
        }
        const auto f = figures_of(records, 1);
        EXPECT_NEAR(f.begun_share, early / 9.0, exact);
        EXPECT_EQ(f.verdict, early == 5 ? Verdict::observed : Verdict::not_observed) << f.reason;
    }
}

TEST(WitnessTest, fewer_than_eight_judged_uses_are_issued_only) {
    EXPECT_EQ(figures_of(PlannedRun{.depth = 1, .n = 8}.records(), 1).judged, 7);
    EXPECT_EQ(figures_of(PlannedRun{.depth = 1, .n = 8}.records(), 1).verdict, Verdict::issued);
    EXPECT_EQ(figures_of(PlannedRun{.depth = 1, .n = 9}.records(), 1).verdict, Verdict::observed);
}

TEST(WitnessTest, computes_too_short_for_the_clock_are_not_judged) {
    const auto f =
        figures_of(PlannedRun{.depth = 1, .n = 50, .gather_ms = 1, .compute_ms = 1}.records(), 1);
    EXPECT_EQ(f.judged, 0);
    EXPECT_EQ(f.verdict, Verdict::issued);
    EXPECT_EQ(f.issued_ahead, 1);
    const auto g =
        figures_of(PlannedRun{.depth = 1, .n = 50, .gather_ms = 1, .compute_ms = 2}.records(), 1);
    EXPECT_EQ(g.judged, 49);
}

TEST(WitnessTest, a_rank_without_tokens_judges_nothing_and_exposes_nothing) {
    auto records = PlannedRun{.depth = 1, .n = 20}.records();
    for (UseRecord& record : records) {
        record.has_tokens = false;
    }
    const auto f = figures_of(records, 1);
    EXPECT_EQ(f.verdict, Verdict::issued);
    EXPECT_EQ(f.judged, 0);
    EXPECT_EQ(f.gathers, 20);
    EXPECT_EQ(f.issued_ahead, 1) << "it issues the same gathers as everyone";
    EXPECT_EQ(f.exposed_s, 0);
    EXPECT_EQ(f.exposed_gathers, 0);
    EXPECT_EQ(f.overlapped_s, 0);
    EXPECT_EQ(f.compute_s, 0);
    EXPECT_EQ(f.computes, 0);
    EXPECT_NEAR(f.gather_s, 0.1, exact);
}

TEST(WitnessTest, a_rank_without_tokens_in_its_last_passes_is_judged_by_the_others) {
    auto records = PlannedRun{.depth = 1, .n = 20}.records();
    for (std::size_t i = 10; i < 20; ++i) {
        records[i].has_tokens = false;
    }
    const auto f = figures_of(records, 1);
    EXPECT_EQ(f.judged, 10);
    EXPECT_EQ(f.verdict, Verdict::observed) << f.reason;
    EXPECT_NEAR(f.compute_s, 0.1, exact);
    EXPECT_EQ(f.computes, 10);
}

TEST(WitnessTest, uses_that_find_their_unit_there_count_as_issued_and_judge_nobody) {
    // Two units at depth 1: gathered once, then resident over ten uses.
    auto records = PlannedRun{.depth = 1, .n = 20}.records();
    for (std::size_t i = 2; i < records.size(); ++i) {
        UseRecord& r = records[i];
        r.unit = static_cast<base::UnitId>(i % 2);
        r.gathered = false;
        r.gather_sequence = records[i % 2].gather_sequence;
        r.gather_begin = r.gather_end = r.slot_free = 0;
    }
    const auto f = figures_of(records, 1);
    EXPECT_EQ(f.issued_ahead, 1);
    EXPECT_EQ(f.gathers, 2);
    EXPECT_EQ(f.judged, 1); // use 0, which the gather of use 1 follows
    EXPECT_EQ(f.verdict, Verdict::issued) << f.reason;
    EXPECT_NEAR(f.exposed_s, 0.005, exact);
    EXPECT_NEAR(f.overlapped_s, 0.005, exact);
}

TEST(WitnessTest, where_nothing_is_moved_the_verdict_is_inert) {
    std::vector<UseRecord> records(12);
    for (std::size_t i = 0; i < records.size(); ++i) {
        records[i].use = static_cast<std::int64_t>(i);
        records[i].compute_sequence = static_cast<std::int64_t>(i) + 1;
        records[i].compute_begin = static_cast<std::int64_t>(i) * 10 * ms;
        records[i].compute_end = records[i].compute_begin + 10 * ms;
    }
    const auto f = figures_of(records, 0, false);
    EXPECT_EQ(f.verdict, Verdict::inert);
    EXPECT_EQ(f.gathers, 0);
    EXPECT_NEAR(f.compute_s, 0.12, exact);
    EXPECT_EQ(f.exposed_s, 0);
}

TEST(WitnessTest, a_long_run_is_judged_to_its_end_with_a_bounded_history) {
    auto records = PlannedRun{.depth = 3, .n = 5000}.records();
    EXPECT_EQ(figures_of(records, 3).judged, 4997);
    std::swap(records[4990].gather_sequence, records[4989].compute_sequence);
    EXPECT_EQ(figures_of(records, 3).verdict, Verdict::not_observed);
}

TEST(ExposedTest, is_compute_idle_while_its_gather_ran_or_waited) {
    UseRecord before;
    before.compute_end = 100;
    UseRecord now;
    now.gathered = true;
    now.gather_issued = 50;
    now.gather_begin = 120;
    now.gather_end = 150;
    now.compute_begin = 160; // 10 of other causes
    EXPECT_EQ(schedule::exposed_part(before, now).begin, 100);
    EXPECT_EQ(schedule::exposed_part(before, now).end, 150);
    EXPECT_EQ(schedule::exposed_part(before, now).ns(), 50);
    now.gather_issued = 130; // before that nobody had asked for it
    EXPECT_EQ(schedule::exposed_part(before, now).ns(), 20);
    now.gather_end = 90; // there before compute was free
    EXPECT_EQ(schedule::exposed_part(before, now).ns(), 0);
}

TEST(ExposedTest, begins_when_the_optimizer_between_two_uses_is_done) {
    UseRecord before;
    before.compute_end = 100;
    UseRecord now;
    now.gathered = true;
    now.gather_end = 150;
    now.compute_begin = 200;
    now.compute_free = 140; // compute was busy until then
    EXPECT_EQ(schedule::exposed_part(before, now).ns(), 10);
    now.compute_free = 160;
    EXPECT_EQ(schedule::exposed_part(before, now).ns(), 0);
}

TEST(ExposedTest, is_empty_without_a_gather_or_without_tokens) {
    UseRecord now;
    now.gather_end = now.compute_begin = 100;
    EXPECT_EQ(schedule::exposed_part({}, now).ns(), 0);
    now.gathered = true;
    EXPECT_EQ(schedule::exposed_part({}, now).ns(), 100);
    now.has_tokens = false;
    EXPECT_EQ(schedule::exposed_part({}, now).ns(), 0);
}

TEST(VerdictTest, the_worst_of_two_is_the_runs) {
    const std::vector<Verdict> from_best = {Verdict::inert, Verdict::observed, Verdict::issued,
                                            Verdict::not_observed};
    for (std::size_t a = 0; a < from_best.size(); ++a) {
        for (std::size_t b = 0; b < from_best.size(); ++b) {
            EXPECT_EQ(schedule::worst(from_best[a], from_best[b]), from_best[std::max(a, b)]);
        }
    }
}

TEST(VerdictTest, has_a_name) {
    EXPECT_EQ(schedule::name_of(Verdict::inert), "inert");
    EXPECT_EQ(schedule::name_of(Verdict::issued), "issued");
    EXPECT_EQ(schedule::name_of(Verdict::observed), "observed");
    EXPECT_EQ(schedule::name_of(Verdict::not_observed), "not observed");
}
