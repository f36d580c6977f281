// SPDX-License-Identifier: Apache-2.0
// Pass k + 1 is enqueued after pass k - 1 was fetched, as in job score.
#include "score_rehearsal.hpp"

namespace foregather::job {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

} // namespace

ScoreRehearsal::ScoreRehearsal(const Parts& parts, const model::HeadWants& wants,
                               base::Elements tokens, std::int64_t windows)
    : Rehearsal(parts.backend.device(), parts.compute,
                schedule::forward_plan(parts.chain.unit_order(), 0, 0), 1),
      p_(parts), upload_(device(), tokens, windows), rows_(device(), wants, tokens, parts.config),
      rows_on_host_(device(), wants, tokens, parts.config) {
    for (Flight& f : flights_) {
        f.begun = device().event();
        f.computed = device().event();
        f.done = device().event();
    }
}

void ScoreRehearsal::take(const PackInputs& inputs) { views_ = upload_.upload(inputs, compute()); }

void ScoreRehearsal::enqueue(Flight& f, schedule::TimedSource& source) {
    device().mark_time(compute());
    source.begin_pass(!views_.ids.empty());
    model::PackView what{views_.ids,  views_.positions, views_.offsets,
                         views_.rows, views_.targets,   {}};
    const auto rows = std::ssize(views_.rows);
    rows_.point(what, rows);
    f.begun->record(compute());
    p_.transformer.forward(source, what, p_.backend.kernels(), compute());
    f.computed->record(compute());
    rows_.copy_out(rows_on_host_, rows, device(), compute());
    f.done->record(compute());
}

std::vector<Rehearsal::StepSeconds> ScoreRehearsal::play(const Ends& ends, std::int64_t steps,
                                                         const Collected& collected) {
    std::vector<StepSeconds> played;
    const auto flight = [this](std::int64_t pass) -> Flight& {
        return flights_[static_cast<std::size_t>(pass % 2)];
    };
    std::int64_t before_computed = 0, before_done = 0; // of the pass before
    ends.source.begin_segment(steps);
    for (std::int64_t pass = 0; pass < steps + 2; ++pass) {
        if (pass >= 2) {
            Flight& f = flight(pass - 2);
            f.done->wait_host();
            ends.source.collect_pass();
            const bool first = pass == 2;
            const std::int64_t begun = f.begun->time_ns();
            const std::int64_t done = f.done->time_ns();
            played.push_back({seconds(done - (first ? begun : before_done)),
                              first ? 0 : seconds(begun - before_computed), 0});
            before_computed = f.computed->time_ns();
            before_done = done;
            collected(pass - 2);
        }
        if (pass < steps) {
            enqueue(flight(pass), ends.source);
        }
    }
    return played;
}

} // namespace foregather::job
