// SPDX-License-Identifier: Apache-2.0
// Gathering, judging, spreading.
#include "figures.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>

namespace foregather::job {
namespace {

// "VmHWM:   1234 kB" and the like in a file of /proc; 0 if it is not there.
std::int64_t kib_line(const char* file, const std::string& name) {
    std::ifstream lines(file);
    for (std::string word; lines >> word;) {
        if (word == name) {
            std::int64_t kib = 0;
            lines >> kib;
            return kib * 1024;
        }
    }
    return 0;
}

} // namespace

std::int64_t peak_host_bytes() { return kib_line("/proc/self/status", "VmHWM:"); }
std::int64_t proportional_bytes() { return kib_line("/proc/self/smaps_rollup", "Pss:"); }

void take(RankFigures& figures, const schedule::PrefetchFigures& p) {
    figures.verdict = static_cast<std::int64_t>(p.verdict);
    figures.issued_ahead = p.issued_ahead;
    figures.judged = p.judged;
    figures.gathers = p.gathers;
    figures.gathers_ahead = p.ahead_gathers;
    figures.order_wrong = p.order_wrong ? 1 : 0;
    figures.begun_ahead = p.begun_ahead;
    figures.begun_share = p.begun_share;
    figures.late_median_s = p.late_median_s;
    figures.late_p95_s = p.late_p95_s;
    figures.overlapped_s = p.overlapped_s;
    figures.seconds[phase_compute] = p.compute_s;
    figures.seconds[phase_gather] = p.gather_s;
    figures.seconds[phase_exposed] = p.exposed_s;
    figures.calls[phase_gather] = p.gathers;
    figures.calls[phase_exposed] = p.exposed_gathers;
    figures.calls[phase_compute] = p.computes;
    p.reason.copy(figures.reason.data(), figures.reason.size() - 1);
}

std::vector<RankFigures> gather_figures(const mesh::Control& control, const RankFigures& mine) {
    const std::string bytes(reinterpret_cast<const char*>(&mine), sizeof(mine));
    std::vector<RankFigures> ranks;
    for (const std::string& one : control.gather_to_first(bytes)) {
        ranks.emplace_back();
        std::memcpy(&ranks.back(), one.data(), sizeof(RankFigures));
    }
    return ranks;
}

RunPrefetch judge_run(const std::vector<RankFigures>& ranks) {
    RunPrefetch run;
    int with_documents = 0;
    bool first = true;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const RankFigures& f = ranks[r];
        run.order_wrong = run.order_wrong || f.order_wrong != 0;
        run.issued_ahead = r == 0 ? f.issued_ahead : std::min(run.issued_ahead, f.issued_ahead);
        run.gathers = std::max(run.gathers, f.gathers);
        run.gathers_ahead = std::max(run.gathers_ahead, f.gathers_ahead);
        if (f.packs == 0) {
            continue;
        }
        ++with_documents;
        run.exposed_s += f.seconds[phase_exposed];
        run.overlapped_s += f.overlapped_s;
        const auto verdict = static_cast<schedule::Verdict>(f.verdict);
        if (first || schedule::worst(run.verdict, verdict) != run.verdict) {
            run.verdict = verdict;
            run.reason = f.reason.data();
            run.verdict_rank = static_cast<int>(r);
            run.worst = f;
            first = false;
        }
    }
    run.exposed_s /= std::max(with_documents, 1);
    run.overlapped_s /= std::max(with_documents, 1);
    return run;
}

Spread spread(const std::vector<RankFigures>& ranks, Phase phase) {
    Spread s;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const double value = ranks[r].seconds[phase];
        s.min = r == 0 ? value : std::min(s.min, value);
        s.mean += value / static_cast<double>(ranks.size());
        if (r == 0 || value > s.max) {
            s.max = value;
            s.rank_of_max = static_cast<int>(r);
        }
    }
    return s;
}

} // namespace foregather::job
