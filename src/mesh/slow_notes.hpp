// SPDX-License-Identifier: Apache-2.0
// Reports of ranks that find their work slow, made into one note: who was doing what. Where reports
// come from, and who prints the note, is decided by the watch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <foregather/mesh/at_work.hpp>

namespace foregather::mesh {

// Of fixed size, to be sent as it is.
struct Place {
    char kind[12];
    std::int64_t number;
    char doing[160];
};
Place place_of(const Work& work); // longer texts are cut
Work work_of(const Place& place);

struct SlowReport {
    int rank;
    int over;
    double seconds, median;
    double stood_still_s; // this process was stopped as a whole so long
    double silence_s;     // of the rank before, 0: none that matters
    Place at, before;     // before: what that rank said last
};

class SlowNotes {
public:
    explicit SlowNotes(std::vector<std::string> names) : names_(std::move(names)) {}

    void add(const SlowReport& report, double now);
    // Notes that are due: all ranks have reported, or those that have not had their time.
    std::vector<std::string> due(double now, bool all = false);

private:
    struct Slow {
        std::int64_t number = 0;
        double since = 0;
        bool told = false;
        std::vector<std::optional<SlowReport>> reports; // by rank
    };
    Slow& slow_of(const Work& work, std::size_t rank);
    std::string note(const Slow& slow, double now) const;
    std::string phase(const Slow& slow, std::size_t rank, double now) const;

    std::vector<std::string> names_; // "rank 1 (host)"
    std::map<std::pair<std::string, std::int64_t>, Slow> slow_;
    std::vector<std::string> late_; // of ranks that came back after the note
    int told_ = 0;
};

} // namespace foregather::mesh
