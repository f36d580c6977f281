// SPDX-License-Identifier: Apache-2.0
// The time that a schedule takes when its steps are replayed with given times, on streams that slow
// each other down: the executor's very Schedule, played in time instead of on a device. It decides
// no times; whoever measured or assumed them hands them over.
#pragma once

#include <array>
#include <vector>

#include <foregather/schedule/schedule.hpp>
#include <foregather/schedule/span.hpp>

namespace foregather::schedule {

// What a pass costs where nothing else runs at the same time, in seconds.
struct PassTimes {
    std::vector<double> compute; // [uses of a pass]
    std::vector<double> gather;  // [units]; all 0 where nothing is moved
    // Empty: none.
    std::vector<double> reduce;    // [units] reduce-scatter and what follows it on that stream
    std::vector<double> replica;   // [units] sum over replicas, once an optimizer step
    std::vector<double> optimizer; // [units] update on the compute stream, once an optimizer step
    // The compute stream is idle between a step's last gradient and its optimizer: the host
    // decides. Of a pass without an optimizer: between passes.
    double between = 0;

    friend bool operator==(const PassTimes&, const PassTimes&) = default;
};

// How much longer work takes for as long as another kind of work runs beside it: 0.3 = 1.3 times.
struct Contention {
    double compute = 0;    // a compute, while anything is gathered or reduced
    double collective = 0; // a gather or a reduction, while anything is computed

    friend bool operator==(const Contention&, const Contention&) = default;
};

// Seconds of one direction in one optimizer step, or in one pass where there is no optimizer.
// Defined as Witness defines them: exposed = compute idle while its gather ran or waited; a wait
// for a gradient slot is part of the compute that it holds up.
struct ReplayedDirection {
    double compute = 0, gather = 0, exposed = 0, overlapped = 0;
};

struct Replayed {
    double step = 0; // s, of an optimizer step, or of a pass: from end to end in the steady state
    std::array<ReplayedDirection, 2> directions{}; // by Direction
    double reduce = 0, exposed_reduce = 0;         // s of the reduce stream; compute idle for it
    double optimizer = 0;
    std::vector<Span> spans; // of the whole replay, if asked for; sequence is the order of issue
    const ReplayedDirection& of(Direction d) const {
        return directions[static_cast<std::size_t>(d)];
    }
    double exposed() const {
        return directions[0].exposed + directions[1].exposed + exposed_reduce;
    }
};

// Replays passes of `plan` (its `passes` and `step_ends` are those of one steady step; the replay
// chains as many as it needs until steps repeat). Throws Error(failed) on times that do not fit the
// plan, or are negative or not finite. Units without a gather of their own (all times 0) are always
// there. A rank that waits for no other: all ranks are taken to be alike. Nothing depends on their
// number.
Replayed replay(const Plan& plan, const PassTimes& times, const Contention& contention = {},
                bool with_spans = false);

} // namespace foregather::schedule
