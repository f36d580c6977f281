// SPDX-License-Identifier: Apache-2.0
// The ledger of a run: the one state in which each key of the deck ends, with the value observed
// where it acts. It measures nothing and prints nothing: the job tells it what was seen, and asks
// it what to say and how to end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <foregather/base/error.hpp>
#include <foregather/deck/deck.hpp>

namespace foregather::deck {

class Ledger {
public:
    // Copies what it needs of the deck. Keys of other jobs are inert from the start.
    explicit Ledger(const Deck& deck);

    // The four verdicts. Each throws base::Error(failed) on an unknown key and on a key that
    // already has another state, or the same state with other words; saying the same twice is
    // harmless. honour: it acted, and this was observed. clamp: it acted at another value than
    // asked for. inert: it could not matter here. dishonour: it should have acted and did not.
    void honour(std::string_view key, std::string observed, std::string reason = "");
    void inert(std::string_view key, std::string reason);
    void clamp(std::string_view key, std::string observed, std::string reason);
    void dishonour(std::string_view key, std::string observed, std::string reason);

    struct Row {
        std::string key;
        std::string value; // as given in the deck or on the command line, else the default
        std::string default_text;
        std::string origin; // as in Setting
        std::string
            state; // "honoured", "inert", "clamped", "not honoured", or "unproved": none yet
        std::string observed; // empty for inert and unproved
        std::string reason;
    };
    // Every key of the table, in table order.
    const std::vector<Row>& rows() const { return rows_; }

    // One line for each key that the user set and that is inert, or clamped: to be told before the
    // job starts. What a machine file sets is not among them.
    std::vector<std::string> inert_notes() const;
    std::vector<std::string> clamp_notes() const;
    // With job.strict = true: throws base::Error(refused) if a key that the user set is inert or
    // clamped, with all of them and their places. Otherwise does nothing.
    void refuse_if_strict() const;

    // done if every key is honoured, inert or clamped; otherwise not_honoured, and problems() has a
    // line for each key that is "not honoured" or "unproved" (a job that forgets a key is caught
    // here, also for a default).
    base::Status close();
    const std::vector<std::string>& problems() const { return problems_; }

private:
    void settle(std::string_view key, std::string state, std::string observed, std::string reason);
    std::vector<std::string> notes(std::string_view state) const;

    std::vector<Row> rows_;
    std::vector<std::string> places_; // Deck::where of each row
    bool strict_ = false;
    std::vector<std::string> problems_;
};

} // namespace foregather::deck
