// SPDX-License-Identifier: Apache-2.0
// Work on streams in time: in order on each, after what it waits for, slowed by other kinds of work
// beside it. It knows neither units nor passes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include <foregather/schedule/replay.hpp>

namespace foregather::schedule {

class Fluid {
public:
    enum class On { compute, gather, reduce };
    using Id = std::int64_t; // of a piece of work, in the order of enqueue(); -1: none

    explicit Fluid(const Contention& contention) : contention_(contention) {}

    // `seconds`: of the work with nothing beside it. `after`: what it waits for beside the work
    // before it on its stream; enqueued before it.
    Id enqueue(On stream, double seconds, std::array<Id, 2> after = {-1, -1});
    // The stream does nothing for so long: neither slows other work nor is slowed.
    Id enqueue_idle(On stream, double seconds);
    // Plays all that has been enqueued, from time 0.
    void run();

    // After run(), in seconds. Work begins when all that it waits for is over.
    double begin(Id id) const { return work_[static_cast<std::size_t>(id)].begin; }
    double end(Id id) const { return id < 0 ? 0 : work_[static_cast<std::size_t>(id)].end; }

private:
    struct Work {
        double left = 0; // s, alone
        std::array<Id, 2> after{-1, -1};
        bool idle = false, begun = false, over = false;
        double begin = 0, end = 0;
    };
    static constexpr std::size_t streams = 3;

    Work* front(std::size_t stream);
    void begin_what_can();
    bool over(Id id) const { return id < 0 || work_[static_cast<std::size_t>(id)].over; }
    double rate(std::size_t stream);
    bool works(std::size_t stream);
    bool advance(); // to the next end of work; false: nothing runs

    Contention contention_;
    std::vector<Work> work_;
    std::array<std::deque<Id>, streams> queue_;
    double now_ = 0;
};

} // namespace foregather::schedule
