// SPDX-License-Identifier: Apache-2.0
// What a rank has in hand, told by its main thread and read by others, and when that takes far
// longer than it used to. It tells nobody: watch.hpp does.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace foregather::mesh {

// Work of a kind that comes again and again: a step, a pass, a save.
struct Work {
    std::string kind; // empty: nothing is in hand
    std::int64_t number = 0;
    std::string doing; // what the main thread does or waits for in it

    std::string name() const { return kind + " " + std::to_string(number); }
};

struct SlowWork {
    Work work; // doing: when it became slow, or last
    double seconds = 0, median = 0;
    bool over = false;
};

// All times are seconds on one clock. May be called from any thread.
class AtWork {
public:
    // Work is slow beyond 10 x the median of its kind, and beyond a second; of a kind that was
    // there less than 10 times before, 3 times for saves, nothing is known.
    static constexpr double factor = 10, least_s = 1;

    AtWork();
    ~AtWork();
    AtWork(const AtWork&) = delete;
    AtWork& operator=(const AtWork&) = delete;

    // Begins work; what was in hand ends.
    void begin(const std::string& kind, std::int64_t number, double now);
    void end(double now);
    void doing(const std::string& what, double now);
    // Has it been in hand long enough for others to want to know exactly?
    bool wants_detail(double now) const;

    Work in_hand() const;
    // Work that has become slow, each once: while it lasts or when it is over.
    std::optional<SlowWork> slow(double now);

    // What the process has in hand, by the latest object that lives: "step 7", or empty. For
    // messages of whoever has no such object.
    static std::string of_process();

private:
    struct Known {                   // of a kind
        std::vector<double> seconds; // a ring of the latest
        std::int64_t times = 0;
        std::optional<double> median;
    };
    static void learn(Known& known, const std::string& kind, double seconds);
    std::optional<double> limit() const; // of what is in hand
    void end_locked(double now);
    SlowWork slow_one(double seconds, bool over) const;

    mutable std::mutex mutex_; // guards all below
    Work work_;
    double begin_ = 0;
    std::string when_slow_; // what was done when the limit was seen to be over
    bool told_ = false;
    std::vector<SlowWork> over_; // slow and not told before they ended
    std::map<std::string, Known> known_;
};

} // namespace foregather::mesh
