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

const std::vector<NamedPhase>& score_phases() {
    static const std::vector<NamedPhase> phases = {
        {phase_setup, "setup"},           {phase_load, "load"},
        {phase_compute, "compute"},       {phase_product, "products in compute"},
        {phase_gather, "gather"},         {phase_exposed, "exposed"},
        {phase_wait, "wait for results"}, {phase_write, "write"},
        {phase_flush, "flush"},           {phase_run, "run"}};
    return phases;
}

const std::vector<NamedPhase>& train_phases() {
    static const std::vector<NamedPhase> phases = {{phase_setup, "setup"},
                                                   {phase_load, "load"},
                                                   {phase_compute, "forward compute"},
                                                   {phase_backward_compute, "backward compute"},
                                                   {phase_product, "products in compute"},
                                                   {phase_gather, "forward gather"},
                                                   {phase_exposed, "exposed forward"},
                                                   {phase_backward_gather, "backward gather"},
                                                   {phase_backward_exposed, "exposed backward"},
                                                   {phase_reduce, "reduce"},
                                                   {phase_exposed_reduce, "exposed reduce"},
                                                   {phase_optimizer, "optimizer"},
                                                   {phase_evaluate, "evaluation"},
                                                   {phase_wait, "wait for results"},
                                                   {phase_step_wait, "of it, for a step"},
                                                   {phase_save, "save"},
                                                   {phase_flush, "flush"},
                                                   {phase_run, "run"}};
    return phases;
}

void take(RankFigures& figures, const schedule::PrefetchFigures& p, schedule::Direction direction) {
    const bool forward = direction == schedule::Direction::forward;
    DirectionFigures& of = forward ? figures : figures.backward;
    of.verdict = static_cast<std::int64_t>(p.verdict);
    of.issued_ahead = p.issued_ahead;
    of.judged = p.judged;
    of.gathers = p.gathers;
    of.gathers_ahead = p.ahead_gathers;
    of.order_wrong = p.order_wrong ? 1 : 0;
    of.begun_ahead = p.begun_ahead;
    of.begun_share = p.begun_share;
    of.late_median_s = p.late_median_s;
    of.late_p95_s = p.late_p95_s;
    of.exposed_s = p.exposed_s;
    of.overlapped_s = p.overlapped_s;
    p.reason.copy(of.reason.data(), of.reason.size() - 1);
    const auto phase = [&](Phase which, double seconds, std::int64_t calls) {
        figures.seconds[which] = seconds;
        figures.calls[which] = calls;
    };
    phase(forward ? phase_compute : phase_backward_compute, p.compute_s, p.computes);
    phase(forward ? phase_gather : phase_backward_gather, p.gather_s, p.gathers);
    phase(forward ? phase_exposed : phase_backward_exposed, p.exposed_s, p.exposed_gathers);
}

void take(RankFigures& figures, const schedule::ReduceFigures& reduce) {
    figures.seconds[phase_reduce] = reduce.reduce_s;
    figures.calls[phase_reduce] = reduce.reductions + reduce.replica_reductions;
    figures.seconds[phase_exposed_reduce] = reduce.exposed_s;
    figures.calls[phase_exposed_reduce] = reduce.exposed_waits;
    figures.train.reductions = reduce.reductions;
    figures.train.replica_reductions = reduce.replica_reductions;
    figures.train.bytes_reduced = reduce.received.count;
    figures.train.reduce_overlapped_s = reduce.overlapped_s;
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

RunPrefetch judge_run(const std::vector<RankFigures>& ranks, schedule::Direction direction) {
    RunPrefetch run;
    int with_documents = 0;
    bool first = true;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const DirectionFigures& f =
            direction == schedule::Direction::forward ? ranks[r] : ranks[r].backward;
        run.order_wrong = run.order_wrong || f.order_wrong != 0;
        run.issued_ahead = r == 0 ? f.issued_ahead : std::min(run.issued_ahead, f.issued_ahead);
        run.gathers = std::max(run.gathers, f.gathers);
        run.gathers_ahead = std::max(run.gathers_ahead, f.gathers_ahead);
        if (ranks[r].packs == 0) {
            continue;
        }
        ++with_documents;
        run.exposed_s += f.exposed_s;
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
