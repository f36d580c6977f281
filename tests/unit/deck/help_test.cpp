// SPDX-License-Identifier: Apache-2.0
// Help and templates show every key of the table, and a template is a deck.
// The words themselves are not tested.
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "good_deck.hpp"

namespace foregather::deck::test {
namespace {

std::string refused_topic(const std::string& topic) {
    try {
        help_text(topic);
    } catch (const base::Error& error) {
        return error.status() == base::Status::refused ? error.what() : "wrong status";
    }
    return "";
}

std::size_t widest(const std::string& text) {
    std::istringstream lines(text);
    std::size_t width = 0;
    for (std::string line; std::getline(lines, line);) {
        width = std::max(width, line.size());
    }
    return width;
}

// The text in one line with single blanks, so that wrapping does not matter.
std::string unwrapped(const std::string& text) {
    std::istringstream words(text);
    std::string result;
    for (std::string word; words >> word;) {
        result += (word == "#" ? "" : word + " ");
    }
    return result;
}

TEST(DeckHelp, ShowsEveryKeyWithAllThatTheTableSays) {
    const std::string all = help_text("");
    for (const KeyInfo& info : known_keys()) {
        const std::string one = help_text(info.key);
        EXPECT_NE(all.find(one), std::string::npos) << info.key;
        EXPECT_EQ(one.rfind(info.key + "\n", 0), 0u) << one;
        const std::string flat = unwrapped(one);
        EXPECT_NE(flat.find(info.help + " "), std::string::npos) << flat;
        EXPECT_NE(flat.find("Takes: " + info.type + " "), std::string::npos) << flat;
        EXPECT_NE(flat.find("Jobs: " + info.jobs + " "), std::string::npos) << flat;
        EXPECT_EQ(flat.find("Unit: ") != std::string::npos, !info.unit.empty()) << flat;
        EXPECT_NE(flat.find(info.unit), std::string::npos) << flat;
        const std::string value = info.default_text.empty() ? "empty" : info.default_text;
        const std::string shown = info.required_by == "all" ? "none; must be given"
                                  : info.required_by.empty()
                                      ? value
                                      : value + "; must be given for " + info.required_by;
        EXPECT_NE(flat.find("Default: " + shown + " "), std::string::npos) << flat;
    }
}

TEST(DeckHelp, ShowsASectionAndNothingElse) {
    const std::string text = help_text("comm");
    EXPECT_NE(text.find("comm.transport\n"), std::string::npos);
    EXPECT_NE(text.find("comm.timeout\n"), std::string::npos);
    EXPECT_NE(text.find("comm.link_rate\n"), std::string::npos);
    EXPECT_EQ(text.find("job."), std::string::npos);
    EXPECT_EQ(text.find("usage"), std::string::npos);
}

TEST(DeckHelp, TakesDashForUnderscore) {
    EXPECT_EQ(help_text("fsdp.forward-prefetch"), help_text("fsdp.forward_prefetch"));
}

TEST(DeckHelp, FitsATerminal) {
    EXPECT_LE(widest(help_text("")), 90u);
    EXPECT_LE(widest(template_text("score")), 90u);
    EXPECT_LE(widest(template_text("train")), 90u);
    EXPECT_LE(widest(template_text("bench")), 90u);
}

TEST(DeckHelp, RefusesAnUnknownTopicWithTheNearest) {
    EXPECT_EQ(refused_topic("fsdp.forward_prefech"),
              "there is no help on \"fsdp.forward_prefech\" (did you mean fsdp.forward_prefetch?)");
    EXPECT_EQ(refused_topic("fdsp"), "there is no help on \"fdsp\" (did you mean fsdp?)");
    EXPECT_EQ(refused_topic("xyzzy"), "there is no help on \"xyzzy\" (sections: job, model, data, "
                                      "device, mesh, fsdp, comm, batch, score, train, checkpoint, "
                                      "bench, plan, machine, output)");
    EXPECT_NE(refused_topic("fsdp."), "");
    EXPECT_NE(refused_topic("forward_prefetch"), "");
}

class DeckTemplate : public testing::TestWithParam<std::string> {
protected:
    // What the job's keys without a default are filled with.
    std::vector<std::string> required() const {
        std::vector<std::string> words = {"--data.tokens=tokens.h5", "--output.file=results.h5",
                                          "--model.weights=model.h5"};
        if (GetParam() == "train") {
            words.insert(words.end(), {"--train.steps=10", "--train.learning_rate=1e-3"});
        }
        return words;
    }
};

TEST_P(DeckTemplate, HasTheKeysOfTheJobWithTheirDefaultsAndNoOthers) {
    const std::string text = template_text(GetParam());
    std::string names;
    for (const KeyInfo& info : known_keys()) {
        const std::string name = info.key.substr(info.key.find('.') + 1);
        const std::string value = info.key == "job.name" ? GetParam() : info.default_text;
        const std::string line = "\n" + name + " =" + (value.empty() ? "" : " " + value) + "\n";
        const bool there = unwrapped(text).find(info.help + " Takes: ") != std::string::npos;
        EXPECT_EQ(there, info.serves(GetParam())) << info.key;
        if (there) {
            EXPECT_NE(text.find(line), std::string::npos) << line;
            names += name + " ";
        }
    }
    EXPECT_EQ(names.find("steps ") != std::string::npos, GetParam() != "score") << names;
}

TEST_P(DeckTemplate, IsADeckOfDefaultsOnceTheRequiredKeysAreFilled) {
    std::string text = template_text(GetParam());
    for (const std::string& word : required()) { // "--data.tokens=tokens.h5"
        const std::size_t dot = word.find('.'), equals = word.find('=');
        const std::string name = word.substr(dot + 1, equals - dot - 1);
        const std::string line = "\n" + name + " =\n";
        const std::size_t at = text.find(line);
        ASSERT_NE(at, std::string::npos) << line;
        text.replace(at, line.size(), "\n" + name + " = " + word.substr(equals + 1) + "\n");
    }
    Sections expected = parsed(GetParam() == "train" ? training_deck : good_deck).sections();
    expected.batch.tokens = Sections{}.batch.tokens;
    expected.job.name = GetParam();
    const Deck deck = parsed(text);
    EXPECT_EQ(deck.sections(), expected);
    for (const Setting& setting : deck.settings()) {
        EXPECT_EQ(setting.origin == "deck", known_key(setting.key).serves(GetParam()))
            << setting.key;
    }
}

TEST_P(DeckTemplate, AsksForTheRequiredKeysUntilTheyAreGiven) {
    const std::string text = template_text(GetParam());
    std::string said = refusal(text) + "\n";
    for (const KeyInfo& info : known_keys()) {
        const std::string line = ": " + info.key + " needs a value";
        EXPECT_EQ(said.find(line) != std::string::npos,
                  info.key != "job.name" && info.is_required_by(GetParam()))
            << line << "\n"
            << said;
    }
    EXPECT_EQ(refusal(text, required()), "");
}

INSTANTIATE_TEST_SUITE_P(Jobs, DeckTemplate, testing::Values("score", "train", "bench"),
                         [](const auto& job) { return job.param; });

TEST(DeckTemplates, RefuseAnUnknownJobWithTheList) {
    for (const char* job : {"", "benches", "Score", "scores"}) {
        try {
            template_text(job);
            ADD_FAILURE() << "accepted " << job;
        } catch (const base::Error& error) {
            EXPECT_EQ(error.status(), base::Status::refused);
            EXPECT_NE(std::string(error.what()).find("(jobs: score, train, bench, plan)"),
                      std::string::npos);
        }
    }
}

} // namespace
} // namespace foregather::deck::test
