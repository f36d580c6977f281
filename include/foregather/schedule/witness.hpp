// SPDX-License-Identifier: Apache-2.0
// What the prefetch did, read off sequence numbers and clocks: issued ahead, begun ahead, late,
// exposed, overlapped, and the verdict. It is fed one use at a time and holds a bounded history.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/schedule/schedule.hpp>

namespace foregather::schedule {

// One use as it happened on this rank. Times in ns on the rank's clock; 0 where there was no
// gather.
struct UseRecord {
    std::int64_t use = 0;
    std::int64_t pass = 0;
    base::UnitId unit = 0;
    Direction direction = Direction::forward;
    int slot = -1;          // -1: resident, no slots, or no weights needed
    bool gathered = false;  // a gather was issued for this use; else its unit was there already
    bool has_tokens = true; // this rank computed something in this pass
    base::Bytes received;   // by this use's gather
    std::int64_t gather_sequence =
        0; // of the gather that brought the unit, maybe for an earlier use
    std::int64_t compute_sequence = 0;
    std::int64_t gather_issued = 0, gather_begin = 0, gather_end = 0;
    // When the slot's last use before this gather had ended, its part had been brought up, and the
    // optimizer had updated it.
    std::int64_t slot_free = 0;
    // When compute had come to this use, where an optimizer may have run since the use before; 0.
    std::int64_t compute_free = 0;
    std::int64_t compute_issued = 0, compute_begin = 0, compute_end = 0;
    // Later uses that must have been gathered for before this compute was issued, and that may have
    // been: where the schedule's depth is not the same everywhere. -1: the direction's depth, or
    // the uses that are left; as many as must.
    std::int64_t must_ahead = -1, may_ahead = -1;
};

enum class Verdict { inert, issued, observed, not_observed };
std::string name_of(Verdict verdict);

// Of the uses of one direction, and of the gathers that served them.
struct PrefetchFigures {
    Verdict verdict = Verdict::inert;
    std::string reason;            // why, naming the use where one is wrong
    bool order_wrong = false;      // the order of issue, which is exact, was not as scheduled
    int requested = 0;             // depth in force, of the direction
    std::int64_t issued_ahead = 0; // the least over all uses that had to have `requested`
    double begun_ahead = 0;        // median over judged uses
    double begun_share = 0;        // of judged uses, with at least one begun ahead
    std::int64_t judged = 0;
    double late_median_s = 0, late_p95_s = 0;
    // Gathers issued; of these ahead, before the compute of the use before was; of these exposed in
    // part.
    std::int64_t gathers = 0, ahead_gathers = 0, exposed_gathers = 0;
    std::int64_t computes = 0; // uses in which this rank computed something
    double exposed_s = 0, overlapped_s = 0, gather_s = 0, compute_s = 0;
    double longest_gather_s = 0;
    base::Bytes received;
};

// Samples for quantiles in bounded memory: beyond the limit every second one is dropped and the
// stride of what is kept doubles, the same way in every run.
class Samples {
public:
    void add(double value);
    double quantile(double q) const; // 0 when empty; nearest rank
private:
    std::vector<double> kept_;
    std::int64_t stride_ = 1;
    std::int64_t seen_ = 0;
};

// When compute was idle while the gather of `record` ran or waited; empty on a rank without tokens.
struct Exposed {
    std::int64_t begin = 0, end = 0;
    std::int64_t ns() const { return end > begin ? end - begin : 0; }
};
Exposed exposed_part(const UseRecord& before, const UseRecord& record);

class Witness {
public:
    // depths: in force, by direction; judged_compute_ns: shortest compute that is judged (2 ms on
    // the host, 20 us on cuda); moves: false where nothing is gathered, and the verdict is `inert`.
    Witness(std::array<int, 2> depths, std::int64_t judged_compute_ns, bool moves);

    // The next `uses` uses are a run of their own: none of them is gathered for by those before,
    // and all of them come.
    void begin_segment(std::int64_t uses);
    void add(const UseRecord& record); // in the order of uses

    // After the last use of a segment.
    PrefetchFigures figures(Direction direction = Direction::forward) const;

private:
    struct Side { // of one direction
        int depth = 0;
        PrefetchFigures sums;
        std::int64_t least_issued = -1;
        std::int64_t begun_uses = 0;
        std::string wrong; // the first use whose order of issue was wrong
        Samples begun, late, compute;
    };
    struct Ahead { // later uses, as seen from one
        std::int64_t issued = 0, begun = 0;
        bool gather_follows = false;
        std::string wrong;
    };
    void judge(std::size_t index);
    Ahead look_ahead(std::size_t index, std::size_t must, std::size_t may) const;
    void overlap(const UseRecord& record);
    Side& side(Direction d) { return sides_[static_cast<std::size_t>(d)]; }
    const Side& side(Direction d) const { return sides_[static_cast<std::size_t>(d)]; }

    int depth_; // the larger one
    std::int64_t judged_compute_ns_;
    bool moves_;
    std::array<Side, 2> sides_;
    std::deque<UseRecord> history_; // of the segment
    std::int64_t segment_end_ = 0;  // its last use + 1
    std::int64_t judged_up_to_ = 0; // uses before this one have been judged
    std::int64_t last_gather_end_ = 0;
};

// The run's: the worst verdict of any rank that had documents.
Verdict worst(Verdict a, Verdict b);

} // namespace foregather::schedule
