// SPDX-License-Identifier: Apache-2.0
// How the text of a deck is read: sections, keys, comments, line ends, what is no line of a deck.
// Values and ranges are tested in values_test.cpp.
#include <string>

#include <gtest/gtest.h>

#include "good_deck.hpp"

namespace foregather::deck::test {
namespace {

std::string title_of(const std::string& line) {
    return parsed(good_deck + "[job]\n" + line + "\n").sections().job.title;
}

TEST(DeckReader, TakesAWholeDeckWithBlanksAroundEverything) {
    const Deck deck = parsed("  [ job ]\t\n\n\tname=score\n[model]\nweights =model.h5\n[data]\n"
                             "tokens= tokens.h5  \n[output]\nfile\t=\tresults.h5");
    EXPECT_EQ(deck.sections().job.name, "score");
    EXPECT_EQ(deck.sections().model.weights, "model.h5");
    EXPECT_EQ(deck.sections().data.tokens, "tokens.h5");
    EXPECT_EQ(deck.sections().output.file, "results.h5");
}

TEST(DeckReader, CutsACommentOnlyAfterABlankOrAtTheBeginning) {
    EXPECT_EQ(title_of("title = run 3 # the third"), "run 3");
    EXPECT_EQ(title_of("title = run 3\t#the third"), "run 3");
    EXPECT_EQ(title_of("title = run#3 # the third"), "run#3");
    EXPECT_EQ(title_of("  # title = other\ntitle = a#"), "a#");
    EXPECT_EQ(title_of("title = # nothing"), "");
    EXPECT_EQ(refusal(good_deck + "[comm] # how\ntransport = mpi # named\n"), "");
}

TEST(DeckReader, RefusesAHashAtTheBeginningOfAValue) {
    EXPECT_EQ(refusal(good_deck + "[job]\ntitle =#3\n"),
              "score.deck:12: job.title holds a # at its beginning or after a blank, which begins "
              "a comment in a deck");
    EXPECT_NE(refusal(good_deck, {"--job.title=run #3"}), "");
    EXPECT_EQ(refusal(good_deck, {"--job.title=run#3"}), "");
}

TEST(DeckReader, KeepsEqualsSignsInValues) {
    EXPECT_EQ(title_of("title = a = b=c"), "a = b=c");
    EXPECT_EQ(parsed(good_deck, {"--job.title=a=b"}).sections().job.title, "a=b");
}

TEST(DeckReader, TakesDashForUnderscoreInKeysOnly) {
    const Deck deck = parsed(good_deck + "[fsdp]\nforward-prefetch = 3\n[job]\ntitle = a-b\n");
    EXPECT_EQ(deck.sections().fsdp.forward_prefetch, 3);
    EXPECT_EQ(deck.sections().job.title, "a-b");
    EXPECT_EQ(parsed(good_deck, {"--fsdp.forward-prefetch=2"}).sections().fsdp.forward_prefetch, 2);
}

TEST(DeckReader, TakesWindowsLineEndsAndAByteOrderMark) {
    std::string text = "\xEF\xBB\xBF" + good_deck + "[job]\ntitle = x\n";
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
        text.replace(at, 1, "\r\n");
    }
    const Deck deck = parsed(text);
    EXPECT_EQ(deck.sections().job.title, "x");
    EXPECT_EQ(deck.sections().batch.tokens, 512);
    EXPECT_EQ(setting_of(deck, "job.title").where, "score.deck:12");
    EXPECT_EQ(deck.text(), text);
}

TEST(DeckReader, RefusesACarriageReturnWithinALine) {
    EXPECT_EQ(refusal(good_deck + "# old\r[job]\rstrict = true\n"),
              "score.deck:11: a carriage return within the line: lines end in LF or CRLF");
}

TEST(DeckReader, RefusesANulByteWithItsLineAndNothingElse) {
    std::string text = "[job]\nname = score\n";
    text[15] = '\0';
    EXPECT_EQ(refusal(text), "score.deck:2: a NUL byte: this is not a text file in UTF-8");
    EXPECT_EQ(refusal(std::string("# comment\n#\0\n", 13)),
              "score.deck:2: a NUL byte: this is not a text file in UTF-8");
}

TEST(DeckReader, RefusesControlCharactersAndBrokenUtf8InValues) {
    EXPECT_EQ(refusal(good_deck + "[job]\ntitle = a\x01z\n"),
              "score.deck:12: job.title holds a control character");
    EXPECT_EQ(refusal(good_deck, {"--job.title=a\nb"}),
              "command line: job.title holds a control character");
    for (const char* broken : {"\xE4", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82",
                               "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xF5\x80\x80\x80"}) {
        EXPECT_EQ(refusal(good_deck + "[job]\ntitle = a" + broken + "\n"),
                  "score.deck:12: job.title is not text in UTF-8");
    }
    EXPECT_EQ(title_of("title = \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x8C\x8D"),
              "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x8C\x8D");
    EXPECT_EQ(title_of("# Latin-1 in a comment: \xE4\ntitle = b"), "b");
}

TEST(DeckReader, RefusesBadSectionLinesWithTheirLineAndNotTheKeysBelow) {
    for (const char* line : {"[fsdp", "[]", "[fsdp] x", "[a b]", "[fsdp]#x", "[[fsdp]]", "["}) {
        const std::string said = refusal(good_deck + line + "\nforward_prefetch = 1\n");
        EXPECT_EQ(said, "score.deck:11: \"" + std::string(line) +
                            "\" is not a section: write [name] alone");
    }
}

TEST(DeckReader, DoesNotAskForARequiredKeyThatABadSectionLineHid) {
    const std::string rest = good_deck.substr(good_deck.find("[model]"));
    EXPECT_EQ(refusal("[job\nname = score\n" + rest),
              "score.deck:1: \"[job\" is not a section: write [name] alone");
}

TEST(DeckReader, RefusesLinesThatAreNeitherSectionNorKey) {
    for (const char* line : {"forward_prefetch", "= 3", "; comment", "a b = 3", "forward prefetch",
                             "forward_prefetch : 2", "na#me = 2"}) {
        const std::string said = refusal(good_deck + "[fsdp]\n" + line + "\n");
        EXPECT_EQ(said, "score.deck:12: \"" + std::string(line) +
                            "\" is not a line of a deck: write [section], key = value or # "
                            "comment");
    }
}

TEST(DeckReader, LetsASectionComeTwiceButNoKey) {
    EXPECT_EQ(refusal(good_deck + "[job]\nstrict = true\n[comm]\ntransport = mpi\n[job]\n"
                                  "title = x\n"),
              "");
    EXPECT_EQ(refusal(good_deck + "[batch]\ntokens = 512\n"),
              "score.deck:12: batch.tokens is given twice (first at score.deck:10)");
}

TEST(DeckReader, AsksAnEmptyDeckForWhatEveryJobNeeds) {
    for (const char* text : {"", "\n", "# nothing"}) {
        const std::string said = refusal(text);
        for (const char* key : {"job.name", "output.file"}) {
            EXPECT_NE(said.find("score.deck: " + std::string(key) + " is required and not given"),
                      std::string::npos)
                << said;
        }
    }
}

TEST(DeckReader, NamesADeckWithALongPathInFull) {
    const std::string path = std::string(200, 'd') + "/score.deck";
    try {
        Deck::parse(good_deck + "foo\n", path, {}, {});
        FAIL() << "accepted";
    } catch (const base::Error& error) {
        EXPECT_EQ(std::string(error.what()).rfind(path + ":11: ", 0), 0u);
    }
}

} // namespace
} // namespace foregather::deck::test
