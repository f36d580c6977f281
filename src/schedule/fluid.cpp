// SPDX-License-Identifier: Apache-2.0
// From one end of work to the next: in between no rate changes, so nothing is approximated.
#include "fluid.hpp"

#include <algorithm>
#include <limits>

#include <foregather/base/error.hpp>

namespace foregather::schedule {
namespace {

constexpr std::size_t index_of(Fluid::On stream) { return static_cast<std::size_t>(stream); }

} // namespace

Fluid::Id Fluid::enqueue(On stream, double seconds, std::array<Id, 2> after) {
    const auto id = static_cast<Id>(work_.size());
    Work work;
    work.left = seconds;
    work.after = after;
    work_.push_back(work);
    queue_[index_of(stream)].push_back(id);
    return id;
}

Fluid::Id Fluid::enqueue_idle(On stream, double seconds) {
    const Id id = enqueue(stream, seconds);
    work_.back().idle = true;
    return id;
}

Fluid::Work* Fluid::front(std::size_t stream) {
    return queue_[stream].empty() ? nullptr
                                  : &work_[static_cast<std::size_t>(queue_[stream].front())];
}

bool Fluid::works(std::size_t stream) {
    const Work* work = front(stream);
    return work != nullptr && work->begun && !work->idle;
}

double Fluid::rate(std::size_t stream) {
    const bool compute = stream == index_of(On::compute);
    if (!works(stream)) {
        return 1;
    }
    const bool beside = compute ? works(index_of(On::gather)) || works(index_of(On::reduce))
                                : works(index_of(On::compute));
    return beside ? 1 / (1 + (compute ? contention_.compute : contention_.collective)) : 1;
}

// Work without length is over at once, and may let others begin.
void Fluid::begin_what_can() {
    for (bool more = true; more;) {
        more = false;
        for (std::size_t s = 0; s < streams; ++s) {
            for (Work* work = front(s); work != nullptr && !work->begun; work = front(s)) {
                if (!std::all_of(work->after.begin(), work->after.end(),
                                 [this](Id id) { return over(id); })) {
                    break;
                }
                work->begun = true;
                work->begin = now_;
                if (work->left > 0) {
                    break;
                }
                work->over = true;
                work->end = now_;
                queue_[s].pop_front();
                more = true;
            }
        }
    }
}

bool Fluid::advance() {
    std::array<double, streams> needs{};
    std::array<double, streams> rates{};
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t s = 0; s < streams; ++s) {
        const Work* work = front(s);
        rates[s] = rate(s);
        needs[s] = work != nullptr && work->begun ? work->left / rates[s]
                                                  : std::numeric_limits<double>::infinity();
        least = std::min(least, needs[s]);
    }
    if (least == std::numeric_limits<double>::infinity()) {
        return false;
    }
    now_ += least;
    for (std::size_t s = 0; s < streams; ++s) {
        Work* work = front(s);
        if (work == nullptr || !work->begun) {
            continue;
        }
        work->left -= least * rates[s];
        if (needs[s] <= least * (1 + 1e-12)) { // ends that rounding alone keeps apart
            work->over = true;
            work->end = now_;
            queue_[s].pop_front();
        }
    }
    return true;
}

void Fluid::run() {
    do {
        begin_what_can();
    } while (advance());
    for (std::size_t s = 0; s < streams; ++s) {
        if (front(s) != nullptr) {
            base::fail("replay: work on stream " + std::to_string(s) + " is never begun");
        }
    }
}

} // namespace foregather::schedule
