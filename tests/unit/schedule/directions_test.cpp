// SPDX-License-Identifier: Apache-2.0
// What the witness tells of forward and backward uses apart, and of segments of a run. The figures
// themselves are witness_test.cpp's.
#include <vector>

#include <gtest/gtest.h>

#include <foregather/schedule/witness.hpp>

#include "records.hpp"

using namespace foregather;
using schedule::Direction;
using schedule::PrefetchFigures;
using schedule::UseRecord;
using schedule::Verdict;
using tests::ms;
using tests::PlannedRun;
using tests::witness_of;

namespace {

constexpr double exact = 1e-12; // of seconds

// The second half of the uses are backward ones.
std::vector<UseRecord> half_backward(std::vector<UseRecord> records) {
    for (std::size_t i = records.size() / 2; i < records.size(); ++i) {
        records[i].direction = Direction::backward;
    }
    return records;
}

} // namespace

TEST(DirectionsTest, times_and_counts_are_of_the_uses_of_a_direction_and_of_their_gathers) {
    // Gather 0 at 0..10, compute 0 at 10..14; from then on 6 ms of each gather are exposed.
    auto records =
        half_backward(PlannedRun{.depth = 1, .n = 20, .gather_ms = 10, .compute_ms = 4}.records());
    records[15].received = {100};
    const schedule::Witness witness = witness_of(records, {1, 1});
    const PrefetchFigures f = witness.figures(Direction::forward);
    const PrefetchFigures b = witness.figures(Direction::backward);
    EXPECT_NEAR(f.exposed_s, 0.010 + 9 * 0.006, exact);
    EXPECT_NEAR(b.exposed_s, 10 * 0.006, exact);
    EXPECT_NEAR(f.overlapped_s, 9 * 0.004, exact);
    EXPECT_NEAR(b.overlapped_s, 10 * 0.004, exact) << "the first one's with a forward compute";
    EXPECT_EQ(f.gathers, 10);
    EXPECT_EQ(b.gathers, 10);
    EXPECT_EQ(f.ahead_gathers, 9);
    EXPECT_EQ(b.ahead_gathers, 10);
    EXPECT_NEAR(f.compute_s, 0.040, exact);
    EXPECT_NEAR(b.gather_s, 0.100, exact);
    EXPECT_EQ(f.judged, 10);
    EXPECT_EQ(b.judged, 9) << "not the run's last";
    EXPECT_EQ(f.received.count, 0);
    EXPECT_EQ(b.received.count, 100);
    EXPECT_EQ(f.verdict, Verdict::observed) << f.reason;
    EXPECT_EQ(b.verdict, Verdict::observed) << b.reason;
}

TEST(DirectionsTest, a_direction_that_does_not_prefetch_is_told_apart_from_one_that_does) {
    auto records = half_backward(PlannedRun{.depth = 1, .n = 30}.records());
    for (std::size_t i = 15; i < 29; ++i) { // gather i+1 behind compute i, in order and in time
        records[i].must_ahead = 0;
        std::swap(records[i + 1].gather_sequence, records[i].compute_sequence);
        records[i + 1].gather_issued = records[i + 1].gather_begin = records[i].compute_end;
    }
    const schedule::Witness serial = witness_of(records, {1, 0});
    EXPECT_EQ(serial.figures(Direction::forward).issued_ahead, 1);
    EXPECT_EQ(serial.figures(Direction::forward).verdict, Verdict::observed);
    EXPECT_EQ(serial.figures(Direction::backward).requested, 0);
    EXPECT_EQ(serial.figures(Direction::backward).begun_share, 0);
    EXPECT_EQ(serial.figures(Direction::backward).verdict, Verdict::observed);
    for (auto& record : records) { // the same, where it was to be ahead
        record.must_ahead = -1;
    }
    const PrefetchFigures b = witness_of(records, {1, 1}).figures(Direction::backward);
    EXPECT_TRUE(b.order_wrong);
    EXPECT_EQ(b.verdict, Verdict::not_observed);
    EXPECT_NE(b.reason.find("at use 15"), std::string::npos) << b.reason;
    EXPECT_EQ(b.issued_ahead, 0);
}

TEST(DirectionsTest, what_a_deeper_direction_has_left_behind_may_begin_at_depth_zero) {
    auto records = PlannedRun{.depth = 1, .n = 20}.records();
    for (std::size_t i = 0; i < records.size(); i += 2) { // forward and backward in turn
        records[i].direction = Direction::backward;
        const bool last = i + 2 >= records.size();
        records[i].must_ahead = last ? 1 : 2; // backward uses reach over the next forward one
        records[i + 1].must_ahead = 0;
        records[i + 1].may_ahead = last ? 0 : 1;
        if (!last) {
            records[i + 2].gather_sequence = records[i].compute_sequence - 1;
        }
    }
    const PrefetchFigures f = witness_of(records, {0, 2}).figures(Direction::forward);
    EXPECT_FALSE(f.order_wrong) << f.reason;
    EXPECT_EQ(f.begun_share, 0) << "of gathers that may not";
    records[3].may_ahead = 0;
    EXPECT_TRUE(witness_of(records, {0, 2}).figures(Direction::forward).order_wrong);
}

TEST(DirectionsTest, a_direction_that_gathers_nothing_is_inert) {
    std::vector<UseRecord> records = PlannedRun{.depth = 1, .n = 10}.records();
    for (int i = 10; i < 20; ++i) { // all there
        UseRecord more = records.back();
        more.direction = Direction::backward;
        more.use = i;
        more.gathered = false;
        more.compute_begin = records.back().compute_end;
        more.compute_end = more.compute_begin + 10 * ms;
        more.compute_sequence = records.back().compute_sequence + 1;
        records.push_back(more);
    }
    const schedule::Witness witness = witness_of(records, {1, 1});
    EXPECT_EQ(witness.figures(Direction::backward).verdict, Verdict::inert);
    EXPECT_EQ(witness.figures(Direction::backward).computes, 10);
    EXPECT_EQ(witness.figures(Direction::backward).issued_ahead, 1);
    EXPECT_EQ(witness.figures(Direction::forward).verdict, Verdict::observed);
}

TEST(SegmentsTest, each_ends_like_a_run_and_figures_go_on) {
    const auto first = PlannedRun{.depth = 1, .n = 10}.records();
    schedule::Witness witness({1, 0}, tests::judged_ns, true);
    for (std::int64_t segment = 0; segment < 3; ++segment) {
        witness.begin_segment(10);
        for (UseRecord record : first) {
            record.use += 10 * segment;
            for (auto* sequence : {&record.gather_sequence, &record.compute_sequence}) {
                *sequence += 1000 * segment;
            }
            for (auto* time : {&record.gather_issued, &record.gather_begin, &record.gather_end,
                               &record.slot_free, &record.compute_begin, &record.compute_end}) {
                *time += 1000 * ms * segment;
            }
            witness.add(record);
        }
    }
    const PrefetchFigures f = witness.figures();
    EXPECT_FALSE(f.order_wrong) << f.reason;
    EXPECT_EQ(f.judged, 3 * 9);
    EXPECT_EQ(f.gathers, 30);
    EXPECT_EQ(f.ahead_gathers, 3 * 9) << "not the first of a segment";
    EXPECT_NEAR(f.exposed_s, 3 * 0.005, exact);
    EXPECT_NEAR(f.overlapped_s, 3 * 0.045, exact);
    EXPECT_EQ(f.verdict, Verdict::observed) << f.reason;
}
