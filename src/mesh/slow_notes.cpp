// SPDX-License-Identifier: Apache-2.0
// Ranks that do the same are told together.
#include "slow_notes.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace foregather::mesh {
namespace {

constexpr double patience_s = 2; // with ranks that have not reported
constexpr int most_notes = 20;   // of a run

template <std::size_t n>
void put(char (&to)[n], const std::string& text) {
    std::memset(to, 0, n);
    std::memcpy(to, text.data(), std::min(text.size(), n - 1));
}

std::string shown(double seconds) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.2g s", seconds);
    return text;
}

std::string seconds_of(double seconds) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f s", seconds);
    return text;
}

std::string at(const Work& work) { return work.doing.empty() ? "at work" : work.doing; }

// "0-2, 5"
std::string numbers(const std::vector<std::size_t>& ranks) {
    std::string text;
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
            ++last;
        }
        text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]) +
                (last > i ? (last > i + 1 ? "-" : ", ") + std::to_string(ranks[last]) : "");
        i = last + 1;
    }
    return text;
}

} // namespace

Place place_of(const Work& work) {
    Place place{};
    put(place.kind, work.kind);
    place.number = work.number;
    put(place.doing, work.doing);
    return place;
}

Work work_of(const Place& place) { return {place.kind, place.number, place.doing}; }

void SlowNotes::add(const SlowReport& report, double now) {
    const Work work = work_of(report.at);
    Slow& slow = slow_of(work, static_cast<std::size_t>(report.rank));
    if (slow.reports.empty()) {
        slow.since = now;
        slow.reports.resize(names_.size());
    }
    const auto rank = static_cast<std::size_t>(report.rank);
    const bool late = slow.told && !slow.reports[rank];
    slow.reports[rank] = report;
    if (late) {
        late_.push_back(Work{work.kind, slow.number, ""}.name() + ": " + names_[rank] +
                        " is heard of again: " + phase(slow, rank, now));
    }
}

// A rank may have been held up at the end of the step before that in which the others wait for it.
SlowNotes::Slow& SlowNotes::slow_of(const Work& work, std::size_t rank) {
    for (const std::int64_t number : {work.number, work.number + 1, work.number - 1}) {
        const auto known = slow_.find({work.kind, number});
        if (known != slow_.end() && (number == work.number || !known->second.reports[rank])) {
            return known->second;
        }
    }
    Slow& slow = slow_[{work.kind, work.number}];
    slow.number = work.number;
    return slow;
}

std::string SlowNotes::phase(const Slow& slow, std::size_t rank, double now) const {
    if (const auto& own = slow.reports[rank]) {
        const Work work = work_of(own->at);
        return (work.number == slow.number ? "" : "in " + work.name() + ", ") + at(work) +
               (own->stood_still_s > 0
                    ? ", after its process stood still for " + seconds_of(own->stood_still_s)
                    : "");
    }
    const auto& next = slow.reports[(rank + 1) % names_.size()];
    if (!next) {
        return "nothing is heard of it";
    }
    if (next->silence_s > 0) {
        const Work last = work_of(next->before);
        return "silent for " + seconds_of(next->silence_s + now - slow.since) +
               (last.kind.empty() ? "" : ", last in " + last.name() + ", " + at(last));
    }
    return "not slow in it so far";
}

std::string SlowNotes::note(const Slow& slow, double now) const {
    const auto first = std::find_if(slow.reports.begin(), slow.reports.end(),
                                    [](const auto& report) { return report.has_value(); });
    const std::string kind = work_of((*first)->at).kind;
    std::string text = Work{kind, slow.number, ""}.name() +
                       ((*first)->over != 0 ? " has taken " : " has lasted ") +
                       seconds_of((*first)->seconds) + ((*first)->over != 0 ? "" : " by now") +
                       ", the median is " + shown((*first)->median);
    std::vector<std::pair<std::string, std::vector<std::size_t>>> groups;
    for (std::size_t r = 0; r < names_.size(); ++r) {
        const std::string what = phase(slow, r, now);
        const auto same = std::find_if(groups.begin(), groups.end(),
                                       [&](const auto& group) { return group.first == what; });
        if (same == groups.end()) {
            groups.push_back({what, {r}});
        } else {
            same->second.push_back(r);
        }
    }
    for (const auto& [what, ranks] : groups) {
        text += "; " + (ranks.size() == 1 ? names_[ranks.front()] : "ranks " + numbers(ranks)) +
                ": " + what;
    }
    return text;
}

std::vector<std::string> SlowNotes::due(double now, bool all) {
    std::vector<std::string> notes;
    for (auto& [work, slow] : slow_) {
        const bool whole = std::all_of(slow.reports.begin(), slow.reports.end(),
                                       [](const auto& report) { return report.has_value(); });
        if (!slow.told && (whole || all || now - slow.since > patience_s)) {
            slow.told = true;
            notes.push_back(note(slow, now));
        }
    }
    notes.insert(notes.end(), late_.begin(), late_.end());
    late_.clear();
    while (slow_.size() > 8) { // reports that come later than that are of no use
        slow_.erase(std::min_element(slow_.begin(), slow_.end(), [](const auto& a, const auto& b) {
            return a.second.since < b.second.since;
        }));
    }
    std::vector<std::string> told;
    for (std::string& note : notes) {
        if (told_ <= most_notes) {
            told.push_back(told_ < most_notes ? std::move(note)
                                              : "more slow steps and saves are not told");
        }
        ++told_;
    }
    return told;
}

} // namespace foregather::mesh
