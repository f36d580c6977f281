// SPDX-License-Identifier: Apache-2.0
// The grammar of the program's command line: flags, the one plain word, overrides.
// Keys and values of the overrides are judged when the deck is parsed.
#include <foregather/deck/deck.hpp>

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <set>

#include <foregather/base/error.hpp>

#include "help.hpp"
#include "nearest.hpp"
#include "table.hpp"
#include "text.hpp"

namespace foregather::deck {

namespace {

using Mode = CommandLine::Mode;

struct Flag {
    const char* name = "";
    std::optional<Mode> mode{}; // nullopt: takes a number
};

constexpr std::array<Flag, 7> flags{{{"--check", Mode::check},
                                     {"--template", Mode::templ},
                                     {"--help", Mode::help},
                                     {"--version", Mode::version},
                                     {"--self-test", Mode::self_test},
                                     {"--ranks", std::nullopt},
                                     {"--ranks-per-node", std::nullopt}}};

class Reader {
public:
    explicit Reader(std::span<const char* const> args) : args_(args) {}

    CommandLine read() {
        for (; next_ < args_.size(); ++next_) {
            const std::string_view word = args_[next_];
            if (word.starts_with('-')) {
                read_option(word);
            } else {
                words_.push_back(word);
            }
        }
        place_words();
        check_company();
        if (!problems_.empty()) {
            base::refuse(joined(problems_, "\n"));
        }
        return result_;
    }

private:
    void read_option(std::string_view word) {
        const std::size_t equals = word.find('=');
        const std::string name(word.substr(0, equals));
        for (const Flag& flag : flags) {
            if (flag.name == name) {
                read_flag(flag, equals == std::string_view::npos
                                    ? std::nullopt
                                    : std::optional(word.substr(equals + 1)));
                return;
            }
        }
        if (!name.starts_with("--") || name.find('.') == std::string::npos) {
            complain_of_flag(name);
        } else if (equals == std::string_view::npos) {
            complain(printable(name) + " has no value: write " + printable(name) + "=value");
        } else {
            result_.overrides.emplace_back(word);
        }
    }

    void complain_of_flag(const std::string& name) {
        std::vector<std::string> known;
        known.reserve(flags.size());
        for (const Flag& flag : flags) {
            known.emplace_back(flag.name);
        }
        const bool one_dash = !name.starts_with("--");
        const std::string close = nearest(one_dash ? "-" + name : name, known);
        complain("unknown flag " + printable(name) + " (" +
                 (close.empty() ? "flags: " + joined(known, ", ") + ", --section.key=value"
                                : "did you mean " + close + "?") +
                 ")");
    }

    void read_flag(const Flag& flag, std::optional<std::string_view> value) {
        if (!seen_.insert(flag.name).second) {
            complain(std::string(flag.name) + " is given twice");
        }
        if (!flag.mode) {
            read_number(flag, value);
            return;
        }
        modes_.emplace_back(flag.name);
        result_.mode = *flag.mode;
        if (value) {
            complain(std::string(flag.name) + " takes no =: write " + flag.name + " " +
                     printable(*value));
            words_.push_back(*value);
        }
    }

    void read_number(const Flag& flag, std::optional<std::string_view> value) {
        if (!value && next_ + 1 < args_.size() &&
            !std::string_view(args_[next_ + 1]).starts_with("--")) {
            value = args_[++next_];
        }
        const std::string_view text = value.value_or("");
        int number = 0;
        const char* end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data(), end, number);
        if (error != std::errc() || rest != end || number < 1) {
            complain(std::string(flag.name) + " takes a whole number, 1 to " +
                     std::to_string(std::numeric_limits<int>::max()) + ", not " + quoted(text));
            return;
        }
        (std::string_view(flag.name) == "--ranks" ? result_.ranks : result_.ranks_per_node) =
            number;
    }

    // Each mode takes one plain word at most.
    void place_words() {
        std::string unused;
        const bool wordless = result_.mode == Mode::version || result_.mode == Mode::self_test;
        std::string& target = result_.mode == Mode::help    ? result_.help_topic
                              : result_.mode == Mode::templ ? result_.template_job
                              : wordless                    ? unused
                                                            : result_.deck_path;
        const std::size_t taken = wordless ? 0 : 1;
        if (!words_.empty() && taken == 1) {
            target = words_.front();
        }
        for (std::size_t i = taken; i < words_.size(); ++i) {
            const std::string_view word = words_[i];
            const bool override_like =
                word.find('.') < word.find('=') && word.find('=') != std::string_view::npos;
            complain("stray word " + quoted(word) +
                     (override_like ? " (did you mean --" + printable(word) + "?)" : ""));
        }
        if (!words_.empty() && taken == 1 && target.empty()) {
            complain("an empty word in place of a name");
        }
        if (words_.empty() && result_.mode == Mode::templ) {
            complain("--template needs the name of a job: write --template " + all_jobs().front());
        }
        if (words_.empty() && (result_.mode == Mode::run || result_.mode == Mode::check)) {
            complain("no deck is named\n" + usage_text());
        }
    }

    void check_company() {
        if (modes_.size() > 1) {
            complain(joined(modes_, " and ") + " do not go together");
        }
        const bool has_deck = result_.mode == Mode::run || result_.mode == Mode::check;
        if (!has_deck && !result_.overrides.empty()) {
            complain(printable(result_.overrides.front()) + " does not go with " + modes_.back());
        }
        const bool counts = seen_.count("--ranks") + seen_.count("--ranks-per-node") != 0;
        if (counts && result_.mode != Mode::check) {
            complain("--ranks and --ranks-per-node go with --check only");
        } else if (seen_.count("--ranks-per-node") != 0 && seen_.count("--ranks") == 0) {
            complain("--ranks-per-node needs --ranks");
        }
    }

    void complain(const std::string& what) { problems_.push_back("command line: " + what); }

    std::span<const char* const> args_;
    std::size_t next_ = 0;
    CommandLine result_;
    std::vector<std::string_view> words_;
    std::vector<std::string> modes_;
    std::set<std::string> seen_;
    std::vector<std::string> problems_;
};

} // namespace

CommandLine parse_command_line(std::span<const char* const> args) {
    if (args.empty()) {
        base::refuse(usage_text());
    }
    return Reader(args).read();
}

} // namespace foregather::deck
