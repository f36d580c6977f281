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
        const std::string shown = info.required               ? "none; must be given"
                                  : info.default_text.empty() ? "empty"
                                                              : info.default_text;
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
}

TEST(DeckHelp, RefusesAnUnknownTopicWithTheNearest) {
    EXPECT_EQ(refused_topic("fsdp.forward_prefech"),
              "there is no help on \"fsdp.forward_prefech\" (did you mean fsdp.forward_prefetch?)");
    EXPECT_EQ(refused_topic("fdsp"), "there is no help on \"fdsp\" (did you mean fsdp?)");
    EXPECT_EQ(refused_topic("train"), "there is no help on \"train\" (sections: job, model, data, "
                                      "device, mesh, fsdp, comm, batch, score, output)");
    EXPECT_NE(refused_topic("fsdp."), "");
    EXPECT_NE(refused_topic("forward_prefetch"), "");
}

TEST(DeckTemplate, HasEveryKeyOfTheJobWithItsDefault) {
    const std::string text = template_text("score");
    for (const KeyInfo& info : known_keys()) {
        const std::string name = info.key.substr(info.key.find('.') + 1);
        const std::string value = info.key == "job.name" ? "score" : info.default_text;
        const std::string line = "\n" + name + " =" + (value.empty() ? "" : " " + value) + "\n";
        EXPECT_NE(text.find(line), std::string::npos) << line;
        EXPECT_NE(unwrapped(text).find(info.help), std::string::npos) << info.key;
    }
}

TEST(DeckTemplate, IsADeckOfDefaultsOnceTheRequiredKeysAreFilled) {
    std::string text = template_text("score");
    for (const auto& [line, filled] : {std::pair{"\nweights =\n", "\nweights = model.h5\n"},
                                       std::pair{"\ntokens =\n", "\ntokens = tokens.h5\n"},
                                       std::pair{"\nfile =\n", "\nfile = results.h5\n"}}) {
        const std::size_t at = text.find(line);
        ASSERT_NE(at, std::string::npos) << line;
        text.replace(at, std::string(line).size(), filled);
    }
    Sections expected = parsed(good_deck).sections();
    expected.batch.tokens = Sections{}.batch.tokens;
    const Deck deck = parsed(text);
    EXPECT_EQ(deck.sections(), expected);
    for (const Setting& setting : deck.settings()) {
        EXPECT_EQ(setting.origin, "deck") << setting.key;
    }
}

TEST(DeckTemplate, AsksForTheRequiredKeysUntilTheyAreGiven) {
    const std::string text = template_text("score");
    const std::string said = refusal(text);
    EXPECT_NE(said.find("model.weights needs a value\n"), std::string::npos);
    EXPECT_NE(said.find("data.tokens needs a value\n"), std::string::npos);
    EXPECT_NE(said.find("output.file needs a value"), std::string::npos);
    EXPECT_EQ(refusal(text, {"--model.weights=m.h5", "--data.tokens=t.h5", "--output.file=r.h5"}),
              "");
}

TEST(DeckTemplate, RefusesAnUnknownJobWithTheList) {
    for (const char* job : {"", "train", "Score", "scores"}) {
        try {
            template_text(job);
            ADD_FAILURE() << "accepted " << job;
        } catch (const base::Error& error) {
            EXPECT_EQ(error.status(), base::Status::refused);
            EXPECT_NE(std::string(error.what()).find("(jobs: score)"), std::string::npos);
        }
    }
}

} // namespace
} // namespace foregather::deck::test
