// SPDX-License-Identifier: Apache-2.0
// The ledger of a run: the one state in which each key of the deck ends.
// It measures nothing and prints nothing: the job tells it what was seen.
#include <foregather/deck/ledger.hpp>

#include <algorithm>
#include <utility>

#include "text.hpp"

namespace foregather::deck {

namespace {

constexpr const char* honoured = "honoured";
constexpr const char* is_inert = "inert";
constexpr const char* clamped = "clamped";
constexpr const char* not_honoured = "not honoured";
constexpr const char* unproved = "unproved";

} // namespace

namespace {

// "job train", "jobs train, bench".
std::string jobs_in_words(const std::string& jobs) {
    const std::vector<std::string> words = words_of(jobs);
    return (words.size() == 1 ? "job " : "jobs ") + joined(words, ", ");
}

} // namespace

Ledger::Ledger(const Deck& deck) : strict_(deck.sections().job.strict) {
    for (const Setting& s : deck.settings()) {
        const KeyInfo& info = known_key(s.key);
        const bool own = info.serves(deck.sections().job.name);
        rows_.push_back({s.key, s.value, s.default_text, s.origin, own ? unproved : is_inert, "",
                         own ? "" : "key of " + jobs_in_words(info.jobs)});
        places_.push_back(deck.where(s.key));
    }
}

void Ledger::honour(std::string_view key, std::string observed, std::string reason) {
    settle(key, honoured, std::move(observed), std::move(reason));
}

void Ledger::inert(std::string_view key, std::string reason) {
    settle(key, is_inert, "", std::move(reason));
}

void Ledger::clamp(std::string_view key, std::string observed, std::string reason) {
    settle(key, clamped, std::move(observed), std::move(reason));
}

void Ledger::dishonour(std::string_view key, std::string observed, std::string reason) {
    settle(key, not_honoured, std::move(observed), std::move(reason));
}

void Ledger::settle(std::string_view key, std::string state, std::string observed,
                    std::string reason) {
    const auto row =
        std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.key == key; });
    if (row == rows_.end()) {
        base::fail("the state " + state + " was reported for " + std::string(key) +
                   ", which is no key of a deck");
    }
    const bool same = row->state == state && row->observed == observed && row->reason == reason;
    if (row->state != unproved && !same) {
        base::fail("two states were reported for " + row->key + ": " + row->state + " (" +
                   row->observed + ") and " + state + " (" + observed + ")");
    }
    row->state = std::move(state);
    row->observed = std::move(observed);
    row->reason = std::move(reason);
}

std::vector<std::string> Ledger::notes(std::string_view state) const {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        const Row& row = rows_[i];
        // A machine file serves many plans: what one of them does not need is no mistake.
        if (row.state != state || row.origin == "default" || row.origin == "machine file") {
            continue;
        }
        const std::string became = row.observed.empty() ? "" : " to " + row.observed;
        lines.push_back(places_[i] + " = " + printable(row.value) + " is " + row.state + became +
                        ": " + row.reason);
    }
    return lines;
}

std::vector<std::string> Ledger::inert_notes() const { return notes(is_inert); }

std::vector<std::string> Ledger::clamp_notes() const { return notes(clamped); }

void Ledger::refuse_if_strict() const {
    std::vector<std::string> lines = notes(is_inert);
    const std::vector<std::string> more = notes(clamped);
    lines.insert(lines.end(), more.begin(), more.end());
    if (strict_ && !lines.empty()) {
        base::refuse("job.strict = true refuses keys that are inert or clamped:\n" +
                     joined(lines, "\n"));
    }
}

base::Status Ledger::close() {
    problems_.clear();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        const Row& row = rows_[i];
        const std::string begin = places_[i] + " = " + printable(row.value);
        if (row.state == not_honoured) {
            problems_.push_back(begin + " was not honoured: observed " + row.observed + ": " +
                                row.reason);
        } else if (row.state == unproved) {
            problems_.push_back(begin + " is unproved: the run did not show what became of it");
        }
    }
    return problems_.empty() ? base::Status::done : base::Status::not_honoured;
}

} // namespace foregather::deck
