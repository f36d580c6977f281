// SPDX-License-Identifier: Apache-2.0
// The definitions of the figures in the prefetch table, as code.
#include <foregather/schedule/witness.hpp>

#include <algorithm>
#include <cmath>

namespace foregather::schedule {
namespace {

constexpr std::size_t most_samples = 1U << 18;

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

} // namespace

std::string name_of(Verdict verdict) {
    switch (verdict) {
    case Verdict::inert:
        return "inert";
    case Verdict::issued:
        return "issued";
    case Verdict::observed:
        return "observed";
    case Verdict::not_observed:
        return "not observed";
    }
    return "";
}

Verdict worst(Verdict a, Verdict b) {
    const auto badness = [](Verdict v) {
        return v == Verdict::not_observed ? 3
               : v == Verdict::issued     ? 2
               : v == Verdict::observed   ? 1
                                          : 0;
    };
    return badness(a) >= badness(b) ? a : b;
}

void Samples::add(double value) {
    if (seen_++ % stride_ != 0) {
        return;
    }
    kept_.push_back(value);
    if (kept_.size() == most_samples) {
        for (std::size_t i = 0; i < most_samples / 2; ++i) {
            kept_[i] = kept_[2 * i];
        }
        kept_.resize(most_samples / 2);
        stride_ *= 2;
    }
}

double Samples::quantile(double q) const {
    if (kept_.empty()) {
        return 0;
    }
    std::vector<double> values = kept_;
    const double rank = std::ceil(q * static_cast<double>(values.size())) - 1;
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 0.0));
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

Witness::Witness(std::array<int, 2> depths, std::int64_t judged_compute_ns, bool moves)
    : depth_(std::max(depths[0], depths[1])), judged_compute_ns_(judged_compute_ns), moves_(moves) {
    sides_[0].depth = depths[0];
    sides_[1].depth = depths[1];
}

void Witness::begin_segment(std::int64_t uses) {
    history_.clear();
    judged_up_to_ = segment_end_;
    segment_end_ += uses;
}

void Witness::add(const UseRecord& record) {
    history_.push_back(record);
    if (record.has_tokens) {
        PrefetchFigures& sums = side(record.direction).sums;
        sums.compute_s += seconds(record.compute_end - record.compute_begin);
        ++sums.computes;
    }
    if (record.gathered) {
        overlap(record);
    }
    // A use can be judged once the use beyond its reach is known, whose gather must not be early.
    while (judged_up_to_ + depth_ + 1 <= record.use ||
           (record.use + 1 == segment_end_ && judged_up_to_ < segment_end_)) {
        judge(static_cast<std::size_t>(judged_up_to_ - history_.front().use));
        ++judged_up_to_;
    }
    // Gathers overlap computes since their slot's last use, at most a few uses back; a bound on
    // what is kept: enough for any slot that is not idle for more than this many uses.
    while (static_cast<std::int64_t>(history_.size()) > 4 * (depth_ + 2) + 64 &&
           history_.front().use < judged_up_to_ - 1) {
        history_.pop_front();
    }
}

Exposed exposed_part(const UseRecord& before, const UseRecord& record) {
    if (!record.gathered || !record.has_tokens) {
        return {};
    }
    return {std::max({before.compute_end, record.compute_free, record.gather_issued}),
            std::min(record.compute_begin, record.gather_end)};
}

void Witness::overlap(const UseRecord& record) {
    PrefetchFigures& sums = side(record.direction).sums;
    ++sums.gathers;
    const double gather_s = seconds(record.gather_end - record.gather_begin);
    sums.gather_s += gather_s;
    sums.longest_gather_s = std::max(sums.longest_gather_s, gather_s);
    sums.received += record.received;
    const UseRecord none;
    const UseRecord& before = history_.size() > 1 ? history_[history_.size() - 2] : none;
    const std::int64_t exposed = exposed_part(before, record).ns();
    sums.exposed_s += seconds(exposed);
    sums.exposed_gathers += exposed > 0 ? 1 : 0;
    for (auto past = history_.rbegin() + 1; past != history_.rend(); ++past) {
        if (past->compute_end <= record.gather_begin) {
            break;
        }
        if (past->has_tokens) {
            const std::int64_t from = std::max(past->compute_begin, record.gather_begin);
            const std::int64_t to = std::min(past->compute_end, record.gather_end);
            sums.overlapped_s += seconds(std::max<std::int64_t>(to - from, 0));
        }
    }
    const std::int64_t could = std::max({record.gather_issued, last_gather_end_, record.slot_free});
    side(record.direction)
        .late.add(seconds(std::max<std::int64_t>(record.gather_begin - could, 0)));
    last_gather_end_ = record.gather_end;
}

// must, may: later uses that must, and that may, have been gathered for.
Witness::Ahead Witness::look_ahead(std::size_t index, std::size_t must, std::size_t may) const {
    const UseRecord& now = history_[index];
    // Without a depth nothing shall begin by now, but what a deeper direction has left behind.
    const std::size_t left_behind = side(now.direction).depth == 0 ? may : 0;
    Ahead ahead;
    for (std::size_t k = 1; k < history_.size() - index; ++k) {
        const UseRecord& later = history_[index + k];
        const bool before_compute = later.gather_sequence < now.compute_sequence;
        ahead.issued += k <= must && before_compute ? 1 : 0;
        if (later.gathered && k > may && before_compute && ahead.wrong.empty()) {
            ahead.wrong = "use " + std::to_string(later.use) + " was gathered before compute " +
                          std::to_string(now.use) + ", more than " + std::to_string(may) + " ahead";
        }
        ahead.begun +=
            later.gathered && k > left_behind && later.gather_begin < now.compute_end ? 1 : 0;
        ahead.gather_follows =
            ahead.gather_follows || (later.gathered && k <= std::max<std::size_t>(must, 1));
    }
    if (ahead.issued != static_cast<std::int64_t>(must) && ahead.wrong.empty()) {
        ahead.wrong = "at use " + std::to_string(now.use) + " " + std::to_string(ahead.issued) +
                      " later uses were issued, not " + std::to_string(must);
    }
    return ahead;
}

void Witness::judge(std::size_t index) {
    const UseRecord& now = history_[index];
    Side& mine = side(now.direction);
    const std::int64_t left = segment_end_ - 1 - now.use;
    const auto must = static_cast<std::size_t>(
        now.must_ahead >= 0 ? now.must_ahead : std::min<std::int64_t>(mine.depth, left));
    const auto may =
        std::max(must, static_cast<std::size_t>(std::max<std::int64_t>(now.may_ahead, 0)));
    const Ahead ahead = look_ahead(index, must, may);
    if (mine.wrong.empty()) {
        mine.wrong = ahead.wrong;
    }
    if (must == static_cast<std::size_t>(mine.depth) &&
        (mine.least_issued < 0 || ahead.issued < mine.least_issued)) {
        mine.least_issued = ahead.issued;
    }
    if (now.gathered && depth_ > 0 && index > 0 &&
        now.gather_sequence < history_[index - 1].compute_sequence) {
        ++mine.sums.ahead_gathers;
    }
    const std::int64_t length = now.compute_end - now.compute_begin;
    // Where nothing need be ahead although there is a depth, nothing can be expected to begin.
    const bool expects = must > 0 || mine.depth == 0;
    if (ahead.gather_follows && now.has_tokens && expects && left >= std::max(mine.depth, 1) &&
        length >= judged_compute_ns_) {
        ++mine.sums.judged;
        mine.begun_uses += ahead.begun >= 1 ? 1 : 0;
        mine.begun.add(static_cast<double>(ahead.begun));
        mine.compute.add(seconds(length));
    }
}

PrefetchFigures Witness::figures(Direction direction) const {
    const Side& mine = side(direction);
    PrefetchFigures f = mine.sums;
    f.requested = mine.depth;
    f.order_wrong = moves_ && !mine.wrong.empty();
    f.issued_ahead = std::max<std::int64_t>(mine.least_issued, 0);
    f.begun_ahead = mine.begun.quantile(0.5);
    f.begun_share =
        f.judged > 0 ? static_cast<double>(mine.begun_uses) / static_cast<double>(f.judged) : 0;
    f.late_median_s = mine.late.quantile(0.5);
    f.late_p95_s = mine.late.quantile(0.95);
    const auto say = [&f](Verdict verdict, std::string reason) {
        f.verdict = verdict;
        f.reason = std::move(reason);
    };
    if (!moves_ || (mine.wrong.empty() && f.gathers == 0)) {
        say(Verdict::inert, "nothing is gathered");
    } else if (!mine.wrong.empty()) {
        say(Verdict::not_observed, mine.wrong);
    } else if (f.judged < 8) {
        say(Verdict::issued, "the order is right; " + std::to_string(f.judged) +
                                 " uses are long enough for the clock, 8 are needed");
    } else if (mine.depth > 0 && 2 * mine.begun_uses < f.judged) {
        say(Verdict::not_observed,
            "at fewer than half of the judged uses a later gather had begun");
    } else if (mine.depth == 0 && mine.begun_uses > 0) {
        say(Verdict::not_observed, "a gather began before the compute before it had ended");
    } else if (f.late_median_s > mine.compute.quantile(0.5) / 2) {
        say(Verdict::not_observed,
            "gathers begin late: median lateness exceeds half the median compute");
    } else {
        say(Verdict::observed, "");
    }
    return f;
}

} // namespace foregather::schedule
