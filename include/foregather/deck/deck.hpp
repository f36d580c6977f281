// SPDX-License-Identifier: Apache-2.0
// The deck and the command line: text in, checked sections out, or one refusal that tells every
// error with its place. It opens no file and knows no MPI: whoever has the text hands it over, and
// every rank that parses it decides alike.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <foregather/deck/sections.hpp>

namespace foregather::deck {

// What a changed key means to a run that continues an earlier one.
enum class Mark {
    identity, // it can change a score: the change is refused
    told,     // it changes speed or what is recorded: the change is told
    free,     // it may change without a word
};

// One line of the key table, in words.
struct KeyInfo {
    std::string key;          // "fsdp.forward_prefetch"
    std::string type;         // "a whole number, 0 to 64"
    std::string unit;         // "units"; empty where the value has none
    std::string jobs;         // "all" or the jobs, space between
    std::string default_text; // as a deck would hold it; empty: an empty string, or required
    std::string required_by;  // "all" its jobs, or those of them that cannot do without it
    Mark mark = Mark::free;
    std::string help;

    bool serves(std::string_view job) const;
    bool is_required_by(std::string_view job) const;
};

// Every key of this build, in table order.
const std::vector<KeyInfo>& known_keys();
// One of them. Throws base::Error(failed) on any other key.
const KeyInfo& known_key(std::string_view key);

// One key of one run: what was given, where, and what it became.
struct Setting {
    std::string key;
    std::string value;        // text as given, or the default's text
    std::string default_text; // as in KeyInfo
    std::string origin;       // "default", "deck", "machine file" or "command line"
    std::string where;        // "score.deck:14", "command line", or "" for a default
    std::string expanded;     // value with each ${NAME} replaced; often equal to value
    std::string plain; // value in plain form: sizes in bytes, times in s, rates in bytes per s
};

// Environment variables by name.
using Variables = std::map<std::string, std::string>;

// This process's values of the variables that `text` and `overrides` name as ${NAME}. Launchers do
// not give every rank the same environment: one rank asks, and all parse with what it found.
Variables variables_of(std::string_view text, const std::vector<std::string>& overrides);

// The text of the file that plan.machine names: [machine] alone, to be laid beneath a deck, whose
// own lines and overrides win.
struct MachineFile {
    std::string name; // as messages call it
    std::string text;
};

class Deck {
public:
    // `deck_name` is what messages call the deck (its path as the user typed it). An override is
    // "--section.key=value" and wins over the deck. Throws base::Error(refused) whose text holds
    // every error found, one a line, each with its place.
    static Deck parse(const std::string& text, const std::string& deck_name,
                      const std::vector<std::string>& overrides, const Variables& variables,
                      const std::optional<MachineFile>& machine = std::nullopt);
    // The same with the variables of this process.
    static Deck parse(const std::string& text, const std::string& deck_name,
                      const std::vector<std::string>& overrides);

    const Sections& sections() const { return sections_; }
    // Every key of the table, in table order.
    const std::vector<Setting>& settings() const { return settings_; }
    // The deck as it was handed over, byte for byte.
    const std::string& text() const { return text_; }
    // A deck that can be run again: every key of the job, and what else was given, with its value
    // (variables expanded) and, as a comment, its origin. Parsed again it yields equal sections.
    std::string effective_text(const std::map<std::string, std::string>& became = {}) const;
    // The plain form of a value: equal for values that mean the same. Throws on an unknown key.
    std::string plain(std::string_view key) const;
    // The beginning of a later refusal: "score.deck:14: fsdp.forward_prefetch",
    // "command line: fsdp.forward_prefetch" or "default: fsdp.forward_prefetch". Throws on an
    // unknown key.
    std::string where(std::string_view key) const;

private:
    Deck() = default;

    std::string text_;
    Sections sections_;
    std::vector<Setting> settings_;
};

struct CommandLine {
    enum class Mode { run, check, templ, help, version, self_test };

    Mode mode = Mode::run;
    std::string deck_path;              // run, check
    std::string help_topic;             // help: "" all, "fsdp" or "fsdp.forward_prefetch"
    std::string template_job;           // templ
    int ranks = 0;                      // check; 0: not given
    int ranks_per_node = 0;             // check; 0: not given
    std::vector<std::string> overrides; // run, check; "--section.key=value", for Deck::parse
};

// `args` is the command line without the program's name. Throws base::Error(refused) that tells
// every error found; the keys and values of the overrides are left to Deck::parse.
CommandLine parse_command_line(std::span<const char* const> args);

// Reference of all keys (""), of a section ("fsdp") or of a key ("fsdp.forward_prefetch"), at most
// 90 columns wide. Throws base::Error(refused) on any other topic.
std::string help_text(std::string_view topic);

// A commented deck with every key of `job` and its default; required keys but job.name are left to
// be filled in. Throws base::Error(refused) on an unknown job.
std::string template_text(std::string_view job);

} // namespace foregather::deck
