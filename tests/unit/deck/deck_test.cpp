// SPDX-License-Identifier: Apache-2.0
// What a parsed deck hands out: settings with their origin, variables, the text as read, a deck
// that can be run again; and the pairs of values that it refuses.
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "good_deck.hpp"

namespace foregather::deck::test {
namespace {

TEST(Deck, HoldsTheDefaultsWhereNothingIsGiven) {
    Sections expected;
    expected.job.name = "score";
    expected.model.weights = "model.h5";
    expected.data.tokens = "tokens.h5";
    expected.output.file = "results.h5";
    expected.batch.tokens = 512;
    EXPECT_EQ(parsed(good_deck).sections(), expected);
}

TEST(Deck, ListsEveryKeyWithValueAndOrigin) {
    const Deck deck = parsed(good_deck + "[comm]\ntimeout = 5 min\nlink_rate = 0\n",
                             {"--comm.link-rate=2 GB/s", "--job.strict=true"});
    const std::vector<KeyInfo>& known = known_keys();
    ASSERT_EQ(deck.settings().size(), known.size());
    for (std::size_t i = 0; i < known.size(); ++i) {
        EXPECT_EQ(deck.settings()[i].key, known[i].key);
        EXPECT_EQ(deck.settings()[i].default_text, known[i].default_text);
    }
    const Setting timeout = setting_of(deck, "comm.timeout");
    EXPECT_EQ(timeout.value, "5 min");
    EXPECT_EQ(timeout.default_text, "120 s");
    EXPECT_EQ(timeout.origin, "deck");
    EXPECT_EQ(timeout.where, "score.deck:12");
    const Setting rate = setting_of(deck, "comm.link_rate");
    EXPECT_EQ(rate.value, "2 GB/s");
    EXPECT_EQ(rate.origin, "command line");
    EXPECT_EQ(rate.where, "command line");
    const Setting shard = setting_of(deck, "mesh.shard");
    EXPECT_EQ(shard.value, "0");
    EXPECT_EQ(shard.origin, "default");
    EXPECT_EQ(shard.where, "");
    EXPECT_EQ(shard.expanded, "0");
}

TEST(Deck, LetsTheCommandLineWinAndLooksAtNoValueThatItReplaces) {
    const Deck deck = parsed(good_deck + "[fsdp]\nforward_prefetch = many\n",
                             {"--fsdp.forward_prefetch=3", "--output.file=other.h5"});
    EXPECT_EQ(deck.sections().fsdp.forward_prefetch, 3);
    EXPECT_EQ(deck.sections().output.file, "other.h5");
    EXPECT_EQ(refusal(good_deck + "[fsdp]\nforward_prefetch = 1\nforward_prefetch = 2\n",
                      {"--fsdp.forward_prefetch=3"}),
              "score.deck:13: fsdp.forward_prefetch is given twice (first at score.deck:12)");
}

TEST(Deck, NamesThePlaceOfAKeyForLaterRefusals) {
    const Deck deck = parsed(good_deck, {"--mesh.shard=2"});
    EXPECT_EQ(deck.where("batch.tokens"), "score.deck:10: batch.tokens");
    EXPECT_EQ(deck.where("mesh.shard"), "command line: mesh.shard");
    EXPECT_EQ(deck.where("comm.timeout"), "default: comm.timeout");
    EXPECT_THROW(deck.where("comm.tiemout"), base::Error);
}

TEST(Deck, KeepsAnEightyKilobyteTextByteForByte) { // f6
    std::string text = good_deck;
    while (text.size() < 80 * 1024) {
        text += "# line " + std::to_string(text.size()) + " \xE4\xF6\xFC\t= [x] \r\n";
    }
    text += "# no line end";
    EXPECT_EQ(parsed(text).text(), text);
    EXPECT_EQ(parsed(text).sections(), parsed(good_deck).sections());
}

TEST(Deck, WritesADeckThatCanBeRunAgain) {
    const Deck deck =
        parsed(good_deck + "[job]\ntitle = run#3 = a;b [x] \"q\" ${HOME}\n[comm]\n"
                           "timeout = 0.1 min\nlink_rate = 3 Mb/s\n[output]\nlog = a#b.log\n",
               {"--fsdp.piece_bytes=3 KiB", "--job.strict=true", "--device.kind=host",
                "--data.max_documents=9223372036854775807", "--score.temperature=0.1"});
    const Deck again = Deck::parse(deck.effective_text(), "again.deck", {}, {});
    EXPECT_EQ(again.sections(), deck.sections());
    EXPECT_EQ(again.sections().comm.timeout_s, 6);
    for (const Setting& setting : again.settings()) {
        EXPECT_EQ(setting.origin == "deck", known_key(setting.key).serves("score")) << setting.key;
    }
}

TEST(Deck, KeepsKeysOfOtherJobsInTheDeckToRunAgainIfTheyWereGiven) {
    const Deck deck = parsed(good_deck, {"--train.learning_rate=1e-4"});
    EXPECT_EQ(deck.sections().train.learning_rate, 1e-4);
    const std::string text = deck.effective_text();
    EXPECT_NE(text.find("\n[train]\nlearning_rate = 1e-4  # command line\n\n[output]\n"),
              std::string::npos)
        << text;
    EXPECT_EQ(Deck::parse(text, "again.deck", {}, {}).sections(), deck.sections());
    const Deck training = parsed(training_deck);
    EXPECT_EQ(training.effective_text().find("[score]"), std::string::npos);
    EXPECT_EQ(Deck::parse(training.effective_text(), "again.deck", {}, {}).sections(),
              training.sections());
}

TEST(Deck, ListsKeysInTheOrderOfSections) {
    std::string sections;
    for (const KeyInfo& info : known_keys()) {
        const std::string section = info.key.substr(0, info.key.find('.')) + " ";
        if (sections.size() < section.size() ||
            sections.substr(sections.size() - section.size()) != section) {
            sections += section;
        }
    }
    EXPECT_EQ(sections, "job model data device mesh fsdp comm batch score train checkpoint bench "
                        "plan machine output ");
}

TEST(Deck, TellsTheOriginOfEachValueInTheDeckToRunAgain) {
    const std::string text =
        parsed("[output]\nfile = ${OUT}/r.h5\n" + good_deck.substr(0, good_deck.find("[output]")),
               {"--mesh.shard=2"}, {{"OUT", "/scratch"}})
            .effective_text();
    for (const char* line :
         {"\n[mesh]\nshard = 2  # command line\n", "\n[fsdp]\nforward_prefetch = 1  # default\n",
          "\ntitle =  # default\n", "file = /scratch/r.h5  # score.deck:2, given as ${OUT}/r.h5\n",
          "\n[model]\nweights = model.h5  # score.deck:6\n"}) {
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
    }
}

TEST(Deck, ANumberThatIsAutoIsThatWordUntilTheDeckToRunAgainSaysWhatItBecame) {
    const Deck deck = parsed(good_deck + "[fsdp]\nforward_prefetch = auto\n");
    EXPECT_EQ(deck.sections().fsdp.forward_prefetch, automatic);
    EXPECT_EQ(deck.plain("fsdp.forward_prefetch"), "auto");
    EXPECT_NE(deck.effective_text().find("\nforward_prefetch = auto  # score.deck:"),
              std::string::npos);
    const std::string text = deck.effective_text({{"fsdp.forward_prefetch", "3"}});
    EXPECT_NE(text.find("\nforward_prefetch = 3  # score.deck:12, given as auto\n"),
              std::string::npos)
        << text;
    EXPECT_EQ(Deck::parse(text, "again.deck", {}, {}).sections().fsdp.forward_prefetch, 3);
}

TEST(DeckVariables, ReplaceNamesInPathsAndKeepTheTextAsGiven) {
    const Variables variables = {{"A_1", "/a b"}, {"_x", "y#z"}, {"EMPTY", ""}};
    const Deck deck = parsed("[job]\nname = score\ntitle = ${A_1}\n[model]\n"
                             "weights = ${A_1}/m${_x}${EMPTY}.h5\n[data]\ntokens = ${A_1}\n",
                             {"--output.file=${_x}/r.h5", "--output.log=${A_1}/l"}, variables);
    EXPECT_EQ(deck.sections().model.weights, "/a b/my#z.h5");
    EXPECT_EQ(deck.sections().data.tokens, "/a b");
    EXPECT_EQ(deck.sections().output.file, "y#z/r.h5");
    EXPECT_EQ(deck.sections().output.log, "/a b/l");
    EXPECT_EQ(deck.sections().job.title, "${A_1}"); // no path
    const Setting weights = setting_of(deck, "model.weights");
    EXPECT_EQ(weights.value, "${A_1}/m${_x}${EMPTY}.h5");
    EXPECT_EQ(weights.expanded, "/a b/my#z.h5");
    EXPECT_EQ(Deck::parse(deck.effective_text(), "again", {}, {}).sections(), deck.sections());
}

TEST(DeckVariables, RefuseWhatIsNotSet) {
    EXPECT_EQ(refusal(good_deck, {"--output.log=${NOPE}/l"}),
              "command line: output.log needs the environment variable NOPE, which is not set: "
              "\"${NOPE}/l\"");
    EXPECT_EQ(refusal(good_deck + "[output]\nlog = ${NOPE}\n", {"--output.log=x"}), "");
}

TEST(DeckVariables, RefuseADollarThatBeginsNoName) {
    for (const char* value :
         {"$HOME/x", "a$", "${", "${}", "${A", "${1A}", "${A-B}", "$(A)", "$$"}) {
        EXPECT_EQ(refusal(good_deck, {"--output.log=" + std::string(value)}, {{"A", "a"}}),
                  "command line: output.log holds a $ that does not begin ${NAME}: \"" +
                      std::string(value) + "\"");
    }
}

TEST(DeckVariables, RefuseValuesThatADeckCouldNotHold) {
    for (const char* value : {"a #b", "#a", " a", "a ", "a\nb", "\xFF", "a$b", "${A}"}) {
        const std::string said = refusal(good_deck, {"--output.log=${A}"}, {{"A", value}});
        EXPECT_EQ(said.rfind("command line: output.log ", 0), 0u) << value << said;
    }
    EXPECT_EQ(refusal(good_deck, {"--output.file=${A}"}, {{"A", ""}}),
              "command line: output.file needs a value");
    EXPECT_NE(refusal(good_deck, {"--output.log=${A}"}, {{"A", std::string(4096, 'p')}}), "");
}

TEST(DeckVariables, AreFoundInTextAndOverridesAndReadFromTheEnvironment) {
    ASSERT_EQ(setenv("FOREGATHER_TEST_ONE", "1", 1), 0);
    ASSERT_EQ(setenv("FOREGATHER_TEST_TWO", "", 1), 0);
    ASSERT_EQ(unsetenv("FOREGATHER_TEST_NONE"), 0);
    const Variables found =
        variables_of("x = ${${FOREGATHER_TEST_ONE}${FOREGATHER_TEST_NONE} $HOME",
                     {"--a.b=${FOREGATHER_TEST_TWO}"});
    EXPECT_EQ(found, (Variables{{"FOREGATHER_TEST_ONE", "1"}, {"FOREGATHER_TEST_TWO", ""}}));
    const Deck deck = Deck::parse(good_deck, "d", {"--output.log=${FOREGATHER_TEST_ONE}"});
    EXPECT_EQ(deck.sections().output.log, "1");
    ASSERT_EQ(unsetenv("FOREGATHER_TEST_ONE"), 0);
    ASSERT_EQ(unsetenv("FOREGATHER_TEST_TWO"), 0);
}

TEST(DeckPairs, RefuseATransportThatTheDeviceDoesNotTake) {
    EXPECT_EQ(refusal(good_deck + "[comm]\ntransport = nccl\n", {"--device.kind=host"}),
              "score.deck:12: comm.transport = nccl does not go with device.kind = host (command "
              "line): nccl moves the memory of GPUs; the host takes mpi or shared");
    for (const char* transport : {"mpi", "shared"}) {
        EXPECT_NE(refusal(good_deck,
                          {"--comm.transport=" + std::string(transport), "--device.kind=cuda"}),
                  "");
        EXPECT_EQ(refusal(good_deck,
                          {"--comm.transport=" + std::string(transport), "--device.kind=host"}),
                  "");
    }
    EXPECT_EQ(refusal(good_deck, {"--comm.transport=nccl", "--device.kind=cuda"}), "");
    EXPECT_EQ(refusal(good_deck, {"--comm.transport=nccl"}), ""); // auto: the machine's to say
}

TEST(DeckPairs, RefuseALinkRateWhereNothingIsMoved) {
    EXPECT_NE(refusal(good_deck, {"--comm.transport=shared", "--comm.link_rate=1 GB/s"}), "");
    EXPECT_EQ(refusal(good_deck, {"--comm.transport=shared", "--comm.link_rate=0"}), "");
    EXPECT_EQ(refusal(good_deck, {"--comm.transport=mpi", "--comm.link_rate=1 GB/s"}), "");
    const std::vector<std::string> inert = {"--job.name=bench", "--comm.transport=shared",
                                            "--comm.link_rate=1 GB/s", "--bench.transports=mpi"};
    EXPECT_EQ(refusal(good_deck, inert), "") << "a bench's list decides";
    EXPECT_NE(refusal(good_deck, {inert[0], inert[1], inert[2]}), "");
}

TEST(DeckPairs, RefuseToRequireWhatATimelineAloneCanShow) {
    EXPECT_NE(refusal(good_deck, {"--output.require=observed", "--output.timeline=false"}), "");
    EXPECT_EQ(refusal(good_deck, {"--output.require=observed"}), "");
    EXPECT_EQ(refusal(good_deck, {"--output.timeline=false"}), "");
}

TEST(DeckPairs, RefuseToWriteOverAFileOfTheSameRun) {
    for (const char* output : {"output.file", "output.log"}) {
        for (const char* input : {"model.h5", "tokens.h5"}) {
            const std::string said = refusal(good_deck, {"--" + std::string(output) + "=" + input});
            EXPECT_NE(said.find("it would be overwritten"), std::string::npos) << output << input;
        }
    }
    EXPECT_NE(refusal(good_deck, {"--output.log=results.h5"}), "");
    EXPECT_NE(refusal(good_deck, {"--output.log=${R}.h5"}, {{"R", "results"}}), "");
    EXPECT_EQ(refusal(good_deck, {"--output.log=results.log"}), "");
}

TEST(DeckPairs, AreToldTogetherWithOtherErrors) {
    const std::string said =
        refusal(good_deck, {"--comm.transport=nccl", "--device.kind=host", "--mesh.shard=x"});
    EXPECT_NE(said.find("mesh.shard takes"), std::string::npos);
    EXPECT_NE(said.find("\ncommand line: comm.transport = nccl does not go"), std::string::npos);
}

} // namespace
} // namespace foregather::deck::test
