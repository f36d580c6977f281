// SPDX-License-Identifier: Apache-2.0
// Decks with bytes and lines changed at random: each is refused, or stands for what its text says,
// judged by a reader of its own here. Some of those that are taken are run.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <foregather/base/error.hpp>
#include <foregather/deck/deck.hpp>
#include <foregather/io/columns.hpp>
#include <foregather/io/h5_data.hpp>
#include <foregather/job/job.hpp>

#include "mutate.hpp"
#include "trial.hpp"

namespace foregather::fuzz {

namespace {

using Said = std::map<std::string, std::string>; // section.key: value

std::string stripped(const std::string& text) {
    const std::size_t first = text.find_first_not_of(" \t");
    return first == std::string::npos
               ? ""
               : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string with_underscores(std::string name) {
    for (char& c : name) {
        c = c == '-' ? '_' : c;
    }
    return name;
}

// What a deck says, by the rules in the README alone: for decks without errors.
Said said_by(std::string text) {
    if (text.starts_with("\xEF\xBB\xBF")) {
        text.erase(0, 3);
    }
    Said said;
    std::string section;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        std::string line = text.substr(at, end - at);
        at = end + 1;
        if (line.ends_with('\r')) {
            line.pop_back();
        }
        for (std::size_t i = 0; i < line.size(); ++i) {
            if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
                line.resize(i);
            }
        }
        line = stripped(line);
        const std::size_t equals = line.find('=');
        if (line.starts_with('[')) {
            section = with_underscores(stripped(line.substr(1, line.size() - 2)));
        } else if (equals != std::string::npos) {
            said[section + "." + with_underscores(stripped(line.substr(0, equals)))] =
                stripped(line.substr(equals + 1));
        }
    }
    return said;
}

// Throws unless the deck holds the text, and every key what the text says.
void stands(const deck::Deck& parsed, const std::string& text) {
    const auto must = [](bool right, const std::string& what) {
        if (!right) {
            throw std::logic_error("the deck does not stand: " + what);
        }
    };
    must(parsed.text() == text, "its text");
    const Said said = said_by(text);
    std::size_t given = 0;
    for (const deck::Setting& setting : parsed.settings()) {
        const auto found = said.find(setting.key);
        given += found == said.end() ? 0 : 1;
        // Of some keys an empty value leaves them as if they were not given.
        const bool left = found == said.end() || (found->second.empty() && setting.value.empty());
        must(left || setting.origin == "deck", "the origin of " + setting.key);
        must(setting.value == (left ? setting.default_text : found->second),
             "the value of " + setting.key);
    }
    must(given == said.size(), "a key");
    const auto again = deck::Deck::parse(parsed.effective_text(), "again", {});
    must(again.sections() == parsed.sections(), "the effective deck says something else");
}

std::string text_of(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// Inputs and outputs that are there, whatever a deck names.
std::vector<std::string> on_this_machine(const std::string& deck, const std::string& results) {
    const std::string inputs = std::getenv("FUZZ_INPUTS");
    std::vector<std::string> words = {"--output.file=" + results};
    if (deck.find("name = plan") == std::string::npos) {
        words.push_back("--data.tokens=" + inputs + "/tokens.h5");
    }
    if (deck.find("name = train") != std::string::npos) {
        words.push_back("--checkpoint.directory=" + inputs);
    } else if (deck.find("name = plan") == std::string::npos) {
        words.push_back("--model.weights=" + inputs + "/weights.h5");
    }
    return words;
}

// Runs the program on a deck; returns what it printed, with its status in the end. Logs that a
// deck names at random lie beside the inputs.
std::string run_program(const std::string& deck, const std::vector<std::string>& words) {
    std::string command = "cd '" + std::string(std::getenv("FUZZ_INPUTS")) + "' && timeout 60 '" +
                          std::getenv("FOREGATHER") + "' '" + deck + "'";
    for (const std::string& word : words) {
        command += " '" + word + "'";
    }
    std::string said;
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
        said += static_cast<char>(c);
    }
    return said + "\nstatus " + std::to_string(WEXITSTATUS(::pclose(pipe)));
}

// What a run of a mutated deck stored of it is the deck.
void is_stored(const std::string& results, const std::string& text) {
    const io::File file = io::open_input(results, "results");
    const io::Dataset stored(
        io::check(H5Dopen2(file.handle(), "/provenance/deck_text", H5P_DEFAULT), "open the deck"));
    EXPECT_EQ(io::read_text(stored, "deck_text"), text);
    const auto keys = io::strings_of(file, "/provenance/deck/key");
    const auto values = io::strings_of(file, "/provenance/deck/value");
    const auto origins = io::strings_of(file, "/provenance/deck/origin");
    Said said = said_by(text);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (origins[i] == "deck") {
            EXPECT_EQ(values[i], said[keys[i]]) << keys[i];
        }
    }
}

TEST(Fuzz, a_changed_deck_is_refused_or_stands_as_it_is_written) {
    std::vector<std::string> decks;
    for (const auto& entry : std::filesystem::directory_iterator("inputs")) {
        if (entry.path().extension() == ".deck") {
            decks.push_back(text_of(entry.path()));
        }
    }
    std::sort(decks.begin(), decks.end());
    // Those with every key too.
    for (std::size_t i = 0, given = decks.size(); i < given; ++i) {
        decks.push_back(deck::Deck::parse(decks[i], "whole.deck", {}).effective_text());
    }
    const std::string results = std::string(std::getenv("FUZZ_INPUTS")) + "/results.h5";
    const std::string path = results + ".deck";
    Random random(first_seed());
    int refused = 0, refused_by_job = 0, taken = 0, run = 0;
    for (int m = 0; m < mutations();) {
        const std::string& from = decks[below(random, decks.size())];
        const std::string text = changed_lines(from, decks, random);
        if (text == from) {
            continue;
        }
        ++m;
        const std::vector<std::string> words = on_this_machine(text, results);
        const Outcome outcome = attempt([&]() -> std::string {
            stands(deck::Deck::parse(text, "fuzz.deck", {}), text);
            try {
                job::check(deck::Deck::parse(text, "fuzz.deck", words), "fuzz.deck", 2, 2);
            } catch (const base::Error& error) {
                if (error.status() != base::Status::refused) {
                    throw;
                }
                return "refused by the job";
            }
            return "taken";
        });
        refused += outcome.kind == Outcome::Kind::refused ? 1 : 0;
        refused_by_job += outcome.text == "refused by the job" ? 1 : 0;
        taken += outcome.text == "taken" ? 1 : 0;
        if (outcome.kind != Outcome::Kind::refused && outcome.kind != Outcome::Kind::accepted) {
            ADD_FAILURE() << "mutation " << m << "\n" << outcome.text << "\n" << text;
        }
        // Every hundredth.
        if (outcome.text == "taken" && m / 100 >= run && text.find("name = score") != text.npos) {
            ++run;
            std::ofstream(path, std::ios::binary) << text;
            std::filesystem::remove(results);
            const std::string said = run_program(path, words);
            EXPECT_TRUE(said.ends_with("status 0")) << said << "\n" << text;
            is_stored(results, text);
        }
    }
    std::printf(
        "noticed: decks: %d mutations, %d refused, %d refused by the job, %d taken, %d run\n",
        mutations(), refused, refused_by_job, taken, run);
    EXPECT_GT(run, 0);
}

} // namespace

} // namespace foregather::fuzz
