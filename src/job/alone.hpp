// SPDX-License-Identifier: Apache-2.0
// What each use computes, and each unit's gather and reduction take, where nothing else runs: the
// times from which a schedule is replayed. One slot is enough for it.
#pragma once

#include <foregather/mesh/control.hpp>
#include <foregather/schedule/replay.hpp>

#include "rehearsal.hpp"
#include "weights_home.hpp"

namespace foregather::job {

// Medians over the passes that were measured. The optimizer's time is divided between units by
// their size.
struct Alone {
    schedule::PassTimes own;    // of this rank
    schedule::PassTimes agreed; // of each time the longest of any rank: the same on every rank
};

class AloneMeter {
public:
    struct Parts { // all must outlive the meter
        Rehearsal& rehearsal;
        WeightsHome& home;
        const mesh::Control& control;
    };
    // Opens sources of its own in `home`, and a reducer. moves: does the transport gather?
    AloneMeter(const Parts& parts, bool moves);

    // Plays so many more steps with computes alone, and as many passes of gathers, then of
    // reductions, alone; the first time one more of each before. Collective; blocks. While it does,
    // all of other sources and reducers must be collected, and nothing of theirs gathered ahead.
    void measure(std::int64_t passes);
    // Collective.
    Alone times() const;

private:
    void measure_gathers(std::int64_t passes);
    void measure_reductions(std::int64_t steps);
    void take_computes(schedule::PassTimes& times) const;
    void take_gathers(schedule::PassTimes& times) const;
    void take_reductions(schedule::PassTimes& times) const;
    void take_optimizer(schedule::PassTimes& times) const;
    std::int64_t units() const;

    Parts p_;
    schedule::TimedSource* computes_; // owned by the home
    schedule::TimedSource* gathers_ = nullptr;
    std::unique_ptr<schedule::GradientReducer> reducer_;
    std::unique_ptr<device::Event> done_;
    bool warm_ = false;
    std::vector<double> between_, optimizer_;
};

// The agreed times of `passes` passes after a first one.
schedule::PassTimes measure_alone(const AloneMeter::Parts& parts, bool moves, std::int64_t passes);

} // namespace foregather::job
