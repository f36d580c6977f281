// SPDX-License-Identifier: Apache-2.0
// Makes a Deck of a text and overrides: which value each key has, where it came from, every error.
// Lines, names, values and pairs of values are judged by the other files of this room.
#include <foregather/deck/deck.hpp>

#include <algorithm>

#include <foregather/base/error.hpp>

#include "conflicts.hpp"
#include "convert.hpp"
#include "expand.hpp"
#include "keys.hpp"
#include "reader.hpp"
#include "store.hpp"
#include "table.hpp"
#include "text.hpp"

namespace foregather::deck {

namespace {

// What one source, the deck or the command line, gives to which key.
using Given = std::map<std::string, Entry>;

class Parser {
public:
    // Sorts the entries of one source by key and tells what is wrong with its names.
    Given match(Reading reading) {
        Given given;
        unreadable_ = unreadable_ || reading.unreadable;
        problems_.insert(problems_.end(), reading.problems.begin(), reading.problems.end());
        std::set<std::string> unknown_sections;
        for (const SectionLine& section : reading.sections) {
            const std::string complaint = section_complaint(section.name);
            if (!complaint.empty()) {
                complain(section.line, section.place, complaint);
                unknown_sections.insert(section.name);
            }
        }
        for (Entry& entry : reading.entries) {
            if (!entry.section || unknown_sections.count(*entry.section) != 0) {
                lost_names_.insert(entry.name); // the section line has been complained of
                continue;
            }
            const Match match = match_key(*entry.section, entry.name);
            if (match.row == nullptr) {
                complain(entry.line, entry.place, match.complaint);
                meant_.insert(match.meant.begin(), match.meant.end());
                continue;
            }
            const auto [first, is_new] = given.emplace(std::string(match.row->key), entry);
            if (!is_new) {
                complain(entry.line, entry.place,
                         std::string(match.row->key) + " is given twice" +
                             (entry.line == command_line_order
                                  ? ""
                                  : " (first at " + first->second.place + ")"));
            }
        }
        return given;
    }

    // The same of a machine file, which holds one section.
    Given match_machine(Reading reading) {
        for (const SectionLine& section : reading.sections) {
            if (section.name != "machine") {
                complain(section.line, section.place,
                         "a machine file holds " + bracketed("machine") + " alone, not " +
                             bracketed(printable(section.name)));
            }
        }
        std::erase_if(reading.entries, [](const Entry& e) {
            return e.section && !e.section->empty() && *e.section != "machine";
        });
        reading.sections.clear();
        return match(std::move(reading));
    }

    // The value of one key, put into `canonical` if it is given and good.
    // sources: those that win last.
    Setting settle(const KeyInfo& info,
                   const std::vector<std::pair<const char*, const Given*>>& sources,
                   const Variables& variables) {
        const Entry* found = nullptr;
        const char* origin = "default";
        for (const auto& [name, given] : sources) {
            const auto at = given->find(info.key);
            // An empty quantity is one that is not given: a template leaves all of them so.
            const bool empty = at != given->end() && at->second.value.empty() &&
                               find_row(info.key)->rule.kind == Kind::sourced;
            if (at != given->end() && !empty) {
                found = &at->second;
                origin = name;
            }
        }
        if (found == nullptr) {
            return {info.key, info.default_text, info.default_text,  origin,
                    "",       info.default_text, plain_default(info)};
        }
        const Entry& entry = *found;
        lines_[info.key] = entry.line;
        const std::string expanded_value = checked(info.key, entry, variables);
        const auto plain = canonical_.find(info.key);
        return {info.key,
                entry.value,
                info.default_text,
                origin,
                entry.place,
                expanded_value,
                plain == canonical_.end() ? "" : in_plain_form(info.key, plain->second)};
    }

    // A key that the job cannot do without, and that was not given, or as an empty text.
    void require(const KeyInfo& info, const Setting& setting, const std::string& deck_name) {
        if (setting.origin != "default") {
            if (canonical_.count(info.key) != 0 && setting.plain.empty()) {
                problems_.push_back(
                    {lines_.at(info.key), setting.where + ": " + info.key + " needs a value"});
            }
            return;
        }
        if (!perhaps_given(info.key)) {
            complain(command_line_order + 1, printable(deck_name, deck_name.size()),
                     info.key + " is required and not given (" + info.help + ")");
        }
    }

    void require_a_model(const Sections& s, const std::string& deck_name) {
        const bool neither = s.model.weights.empty() && s.model.config.empty();
        if (s.job.name == "train" && neither && !perhaps_given("model.weights") &&
            !perhaps_given("model.config")) {
            complain(command_line_order + 1, printable(deck_name, deck_name.size()),
                     "train needs model.weights, a weights file to begin with, or model.config, "
                     "for random weights of its model; neither is given");
        }
    }

    void add(const std::string& message) { problems_.push_back({command_line_order + 1, message}); }

    void refuse_if_any() {
        if (problems_.empty()) {
            return;
        }
        std::stable_sort(problems_.begin(), problems_.end(),
                         [](const Problem& a, const Problem& b) { return a.line < b.line; });
        std::vector<std::string> lines;
        for (const Problem& problem : problems_) {
            lines.push_back(problem.message);
        }
        base::refuse(joined(lines, "\n"));
    }

    const std::map<std::string, std::string>& canonical() const { return canonical_; }

private:
    // A number that stands for a word is that word.
    static std::string in_plain_form(const std::string& key, const std::string& canonical) {
        const Rule& rule = find_row(key)->rule;
        const bool word = rule.kind == Kind::whole && !rule.choices.empty() &&
                          canonical == std::to_string(automatic);
        return word ? std::string(rule.choices) : canonical;
    }

    static std::string plain_default(const KeyInfo& info) {
        return info.required_by.empty()
                   ? cleaned(find_row(info.key)->rule, info.default_text).canonical
                   : "";
    }

    // Has a complaint been made that may be about this key?
    bool perhaps_given(const std::string& key) const {
        const std::string name(find_row(key)->name());
        const bool refused = lines_.count(key) != 0 && canonical_.count(key) == 0;
        return unreadable_ || refused || meant_.count(key) != 0 || lost_names_.count(name) != 0;
    }

    // The value with its variables replaced; as it is where that cannot be done.
    std::string checked(const std::string& key, const Entry& entry, const Variables& variables) {
        const Rule& rule = find_row(key)->rule;
        Expansion value{entry.value, plain_refusal(entry.value)};
        if (value.refusal.empty() && rule.kind == Kind::path) {
            value = expanded(entry.value, variables);
        }
        if (value.refusal.empty()) {
            const Clean clean = cleaned(rule, value.text);
            value.refusal = clean.refusal;
            canonical_[key] = clean.canonical;
        }
        if (!value.refusal.empty()) {
            complain(entry.line, entry.place, key + " " + value.refusal);
            canonical_.erase(key);
            return entry.value;
        }
        return value.text;
    }

    void complain(int line, const std::string& place, const std::string& what) {
        problems_.push_back({line, place + ": " + what});
    }

    std::vector<Problem> problems_;
    bool unreadable_ = false;
    std::set<std::string> meant_;      // keys that a complaint hints at
    std::set<std::string> lost_names_; // names below a section line that was refused
    std::map<std::string, int> lines_; // of the entries that were settled, for the order of errors
    std::map<std::string, std::string> canonical_;
};

// Where the job is unknown only what every job needs is asked for.
bool needs(const std::string& job, const KeyInfo& info) {
    const std::vector<std::string> jobs = job.empty() ? all_jobs() : std::vector{job};
    return std::all_of(jobs.begin(), jobs.end(),
                       [&](const std::string& one) { return info.is_required_by(one); });
}

} // namespace

Deck Deck::parse(const std::string& text, const std::string& deck_name,
                 const std::vector<std::string>& overrides) {
    return parse(text, deck_name, overrides, variables_of(text, overrides));
}

Deck Deck::parse(const std::string& text, const std::string& deck_name,
                 const std::vector<std::string>& overrides, const Variables& variables,
                 const std::optional<MachineFile>& machine) {
    Parser parser;
    const Given in_deck = parser.match(read_deck(text, deck_name));
    const Given on_line = parser.match(read_overrides(overrides));
    const Given beneath =
        machine ? parser.match_machine(read_deck(machine->text, machine->name)) : Given();
    const std::vector<std::pair<const char*, const Given*>> sources = {
        {"machine file", &beneath}, {"deck", &in_deck}, {"command line", &on_line}};
    Deck deck;
    deck.text_ = text;
    for (const KeyInfo& info : known_keys()) {
        deck.settings_.push_back(parser.settle(info, sources, variables));
        if (needs(deck.settings_.front().plain, info)) { // job.name is the first key
            parser.require(info, deck.settings_.back(), deck_name);
        }
    }
    store(parser.canonical(), deck.sections_);
    parser.require_a_model(deck.sections_, deck_name);
    for (const std::string& conflict : conflicts(deck)) {
        parser.add(conflict);
    }
    parser.refuse_if_any();
    return deck;
}

std::string Deck::effective_text(const std::map<std::string, std::string>& became) const {
    std::string result = "# Every key of the run and where its value came from; this deck can be "
                         "run again.\n";
    std::string_view section;
    for (const Setting& setting : settings_) {
        const Row& row = *find_row(setting.key);
        if (setting.origin == "default" && !known_key(setting.key).serves(sections_.job.name)) {
            continue;
        }
        if (row.section() != section) {
            section = row.section();
            result += '\n';
            result += bracketed(section) + "\n";
        }
        const auto now = became.find(setting.key);
        const std::string& value = now == became.end() ? setting.expanded : now->second;
        result += std::string(row.name()) + " =" + (value.empty() ? "" : " ") + value + "  # " +
                  (setting.where.empty() ? setting.origin : setting.where) +
                  (value == setting.value ? "" : ", given as " + setting.value) + "\n";
    }
    return result;
}

std::string Deck::plain(std::string_view key) const {
    for (const Setting& setting : settings_) {
        if (setting.key == key) {
            return setting.plain;
        }
    }
    base::fail("asked for the value of " + printable(key) + ", which is no key of a deck");
}

std::string Deck::where(std::string_view key) const {
    for (const Setting& setting : settings_) {
        if (setting.key == key) {
            return (setting.where.empty() ? setting.origin : setting.where) + ": " + setting.key;
        }
    }
    base::fail("asked for the place of " + printable(key) + ", which is no key of a deck");
}

} // namespace foregather::deck
