// SPDX-License-Identifier: Apache-2.0
// Spans of passes in which one kind of work runs by itself, as medians.
#include "alone.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include <foregather/base/error.hpp>

#include "bench_statistics.hpp"

namespace foregather::job {
namespace {

using Samples = std::map<std::int64_t, std::vector<double>>; // by use or unit

double length_s(const schedule::Span& span) {
    return static_cast<double>(span.end_ns - span.begin_ns) * 1e-9;
}

void take_medians(const Samples& samples, std::vector<double>& into) {
    for (const auto& [at, seconds] : samples) {
        into[static_cast<std::size_t>(at)] = median(seconds);
    }
}

// Of each time the longest of any rank.
void agree(std::vector<double>& times, const mesh::Control& control) {
    std::string bytes(times.size() * sizeof(double), '\0');
    std::memcpy(bytes.data(), times.data(), bytes.size());
    for (const std::string& other : control.gather(bytes)) {
        if (other.size() != bytes.size()) {
            base::fail("ranks measured passes of different uses");
        }
        for (std::size_t i = 0; i < times.size(); ++i) {
            double time = 0;
            std::memcpy(&time, other.data() + i * sizeof(double), sizeof(double));
            times[i] = std::max(times[i], time);
        }
    }
}

} // namespace

AloneMeter::AloneMeter(const Parts& parts, bool moves)
    : p_(parts), computes_(&p_.home.open_source({p_.rehearsal.plan(), 0, all_passes})),
      reducer_(p_.rehearsal.reducer()), done_(p_.rehearsal.device().event()) {
    if (moves) {
        std::vector<base::UnitId> forward;
        for (const schedule::Use& use : p_.rehearsal.plan().pass) {
            if (use.direction == schedule::Direction::forward) {
                forward.push_back(use.unit);
            }
        }
        gathers_ = &p_.home.open_source({schedule::forward_plan(forward, 0, 0), 0, all_passes});
    }
}

std::int64_t AloneMeter::units() const {
    base::UnitId last = -1;
    for (const schedule::Use& use : p_.rehearsal.plan().pass) {
        last = std::max(last, use.unit);
    }
    return last + 1;
}

void AloneMeter::measure(std::int64_t passes) {
    const std::int64_t more = warm_ ? 0 : 1;
    const auto played = p_.rehearsal.play({*computes_}, passes + more, [](std::int64_t) {});
    for (std::size_t i = 1; i < played.size(); ++i) {
        between_.push_back(played[i].between);
    }
    for (std::size_t i = static_cast<std::size_t>(more); i < played.size(); ++i) {
        optimizer_.push_back(played[i].optimizer);
    }
    if (const double update = p_.rehearsal.update_s(); update > 0) {
        optimizer_ = {update};
    }
    if (gathers_ != nullptr) {
        measure_gathers(passes + more);
    }
    if (reducer_) {
        measure_reductions(passes + more);
    }
    warm_ = true;
}

void AloneMeter::measure_gathers(std::int64_t passes) {
    device::Stream& compute = p_.rehearsal.compute();
    std::vector<base::UnitId> forward;
    for (const schedule::Use& use : p_.rehearsal.plan().pass) {
        if (use.direction == schedule::Direction::forward) {
            forward.push_back(use.unit);
        }
    }
    gathers_->begin_segment(passes);
    for (std::int64_t pass = 0; pass < passes; ++pass) {
        p_.rehearsal.device().mark_time(compute);
        gathers_->begin_pass(true);
        for (const base::UnitId unit : forward) {
            gathers_->acquire(unit, compute);
            gathers_->release(unit, compute);
        }
        done_->record(compute);
        done_->wait_host();
        gathers_->collect_pass();
    }
}

// With replicas in steps of two passes: what is summed over them is told from what is not.
void AloneMeter::measure_reductions(std::int64_t steps) {
    device::Stream& compute = p_.rehearsal.compute();
    const std::int64_t passes = p_.rehearsal.replicas() ? 2 : p_.rehearsal.passes_per_step();
    const schedule::Plan plan = segment_of(p_.rehearsal.plan(), steps, passes);
    reducer_->begin_segment(plan);
    for (std::int64_t pass = 0; pass < plan.passes; ++pass) {
        p_.rehearsal.device().mark_time(compute);
        for (const schedule::Use& use : plan.pass) {
            if (use.direction == schedule::Direction::backward) {
                reducer_->begin(use.unit, compute);
                reducer_->end(use.unit, compute);
            }
        }
        if ((pass + 1) % passes == 0) {
            reducer_->wait_reduced(compute);
        }
        done_->record(compute);
        done_->wait_host();
        reducer_->collect_pass();
    }
}

void AloneMeter::take_computes(schedule::PassTimes& times) const {
    Samples samples;
    std::int64_t pass = -1;
    std::int64_t use = 0;
    for (const schedule::Span& span : computes_->spans()) {
        if (span.kind == schedule::SpanKind::compute &&
            span.pass >= p_.rehearsal.passes_per_step()) {
            use = span.pass == pass ? use + 1 : 0;
            pass = span.pass;
            samples[use].push_back(length_s(span));
        }
    }
    take_medians(samples, times.compute);
}

void AloneMeter::take_gathers(schedule::PassTimes& times) const {
    if (gathers_ == nullptr) {
        return;
    }
    Samples samples;
    for (const schedule::Span& span : gathers_->spans()) {
        if (span.kind == schedule::SpanKind::gather && span.pass >= 1) {
            samples[span.unit].push_back(length_s(span));
        }
    }
    take_medians(samples, times.gather);
}

void AloneMeter::take_reductions(schedule::PassTimes& times) const {
    if (!reducer_) {
        return;
    }
    const bool replicas = p_.rehearsal.replicas();
    const std::int64_t warm_up = replicas ? 2 : p_.rehearsal.passes_per_step();
    Samples samples, completing;
    std::map<std::pair<std::int64_t, base::UnitId>, double> latest; // by pass and unit
    for (const schedule::Span& span : reducer_->spans()) {
        if (span.kind != schedule::SpanKind::reduce || span.pass < warm_up) {
            continue;
        }
        if (replicas && span.pass % 2 == 1) {
            latest[{span.pass, span.unit}] = length_s(span);
        } else {
            samples[span.unit].push_back(length_s(span));
        }
    }
    take_medians(samples, times.reduce);
    for (const auto& [at, seconds] : latest) {
        completing[at.second].push_back(seconds);
    }
    take_medians(completing, times.replica);
    for (std::size_t u = 0; u < times.replica.size(); ++u) {
        times.replica[u] = std::max(times.replica[u] - times.reduce[u], 0.0);
    }
}

void AloneMeter::take_optimizer(schedule::PassTimes& times) const {
    double all = 0;
    for (std::size_t u = 0; u < times.optimizer.size(); ++u) {
        times.optimizer[u] = static_cast<double>(p_.home.part_of(static_cast<base::UnitId>(u)).n);
        all += times.optimizer[u];
    }
    for (double& seconds : times.optimizer) {
        seconds *= median(optimizer_) / all;
    }
}

Alone AloneMeter::times() const {
    schedule::PassTimes own;
    const auto units = static_cast<std::size_t>(this->units());
    own.compute.resize(p_.rehearsal.plan().pass.size());
    for (auto* of_units : {&own.gather, &own.reduce, &own.replica, &own.optimizer}) {
        of_units->resize(units);
    }
    take_computes(own);
    take_gathers(own);
    take_reductions(own);
    take_optimizer(own);
    own.between = median(between_);
    schedule::PassTimes agreed = own;
    for (auto* times :
         {&agreed.compute, &agreed.gather, &agreed.reduce, &agreed.replica, &agreed.optimizer}) {
        agree(*times, p_.control);
    }
    std::vector<double> between = {agreed.between};
    agree(between, p_.control);
    agreed.between = between.front();
    return {std::move(own), std::move(agreed)};
}

schedule::PassTimes measure_alone(const AloneMeter::Parts& parts, bool moves, std::int64_t passes) {
    AloneMeter meter(parts, moves);
    meter.measure(passes);
    return meter.times().agreed;
}

} // namespace foregather::job
