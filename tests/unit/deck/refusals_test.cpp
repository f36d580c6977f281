// SPDX-License-Identifier: Apache-2.0
// Case T05, no key is dropped (with a3): one fault at a time in a good deck or on the command line
// gives one message with place, key, reason and the nearest key.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "good_deck.hpp"

namespace foregather::deck::test {
namespace {

struct Fault {
    const char* name;
    std::string deck;
    std::vector<std::string> overrides;
    std::string said; // the whole message
};

std::string after_good(const std::string& lines) { return good_deck + lines; }

const std::vector<Fault> faults = {
    {"UnknownKey",
     after_good("[fsdp]\nforward_prefech = 1\n"),
     {},
     "score.deck:12: unknown key fsdp.forward_prefech (did you mean fsdp.forward_prefetch?)"},
    {"UnknownKeyLettersSwapped",
     after_good("[fsdp]\nforward_prefecth = 1\n"),
     {},
     "score.deck:12: unknown key fsdp.forward_prefecth (did you mean fsdp.forward_prefetch?)"},
    {"UnknownKeyOfAnotherSectionWithAWordInCommon", // a3
     after_good("prefetch_dept = 1\n"),
     {},
     "score.deck:11: unknown key batch.prefetch_dept (did you mean fsdp.forward_prefetch or "
     "fsdp.backward_prefetch?)"},
    {"UnknownKeyLikeNoOther",
     after_good("[fsdp]\nxyzzy = 1\n"),
     {},
     "score.deck:12: unknown key fsdp.xyzzy (keys of [fsdp]: forward_prefetch, "
     "backward_prefetch, reshard_after_forward, param_dtype, reduce_dtype, piece_bytes, "
     "gather_memory, offload)"},
    {"KnownKeyInTheWrongSection",
     after_good("[job]\nforward_prefetch = 1\n"),
     {},
     "score.deck:12: unknown key job.forward_prefetch (wrong section: did you mean "
     "fsdp.forward_prefetch?)"},
    {"KnownKeyOfTwoOtherSections",
     after_good("[fsdp]\ntokens = 1\n"),
     {},
     "score.deck:12: unknown key fsdp.tokens (wrong section: did you mean data.tokens or "
     "batch.tokens or bench.tokens or plan.tokens?)"},
    {"UnknownSection",
     after_good("[fdsp]\nforward_prefetch = 1\n"),
     {},
     "score.deck:11: unknown section [fdsp] (did you mean [fsdp]?)"},
    {"UnknownSectionLikeNoOther",
     after_good("[xyzzy]\nlearning_rate = 1\n"),
     {},
     "score.deck:11: unknown section [xyzzy] (sections: job, model, data, device, mesh, fsdp, "
     "comm, batch, score, train, checkpoint, bench, plan, machine, output)"},
    {"SectionInWrongCase",
     after_good("[FSDP]\nforward_prefetch = 1\n"),
     {},
     "score.deck:11: unknown section [FSDP] (case matters: did you mean [fsdp]?)"},
    {"KeyInWrongCase",
     after_good("[fsdp]\nForward_Prefetch = 1\n"),
     {},
     "score.deck:12: unknown key fsdp.Forward_Prefetch (case matters: did you mean "
     "fsdp.forward_prefetch?)"},
    {"KeyBeforeAnySection",
     "forward-prefetch = 1\n" + good_deck,
     {},
     "score.deck:1: key forward_prefetch comes before any section (write [fsdp] and below it "
     "forward_prefetch = ...)"},
    {"WholeKeyBeforeAnySection",
     "job.strict = true\n" + good_deck,
     {},
     "score.deck:1: key job.strict comes before any section (write [job] and below it strict = "
     "...)"},
    {"KeyOfNoSectionBeforeAnySection",
     "xyzzy = true\n" + good_deck,
     {},
     "score.deck:1: key xyzzy comes before any section (sections: job, model, data, device, mesh, "
     "fsdp, comm, batch, score, train, checkpoint, bench, plan, machine, output)"},
    {"KeyTwice",
     after_good("[fsdp]\nforward_prefetch = 1\nforward-prefetch = 1\n"),
     {},
     "score.deck:13: fsdp.forward_prefetch is given twice (first at score.deck:12)"},
    {"ValueWithAUnitThatTheKeyDoesNotTake",
     after_good("[fsdp]\nforward_prefetch = 8 parsecs\n"),
     {},
     "score.deck:12: fsdp.forward_prefetch takes auto or a whole number, 0 to 64, not \"8 "
     "parsecs\""},
    {"ValueOutOfRange",
     after_good("[fsdp]\nforward_prefetch = -1\n"),
     {},
     "score.deck:12: fsdp.forward_prefetch is out of range: it takes auto or a whole number, 0 to "
     "64, not "
     "\"-1\""},
    {"MisspeltRequiredKeyIsToldOnce",
     "[job]\nnmae = score\n" + good_deck.substr(good_deck.find("[model]")),
     {},
     "score.deck:2: unknown key job.nmae (did you mean job.name?)"},
    {"MisspeltSectionOfARequiredKeyIsToldOnce",
     "[jbo]\nname = score\n" + good_deck.substr(good_deck.find("[model]")),
     {},
     "score.deck:1: unknown section [jbo] (did you mean [job]?)"},
    {"RequiredKeyMissing",
     good_deck.substr(good_deck.find("[model]")),
     {},
     "score.deck: job.name is required and not given (What to do. score: the log-probability of "
     "every token. train: change the weights so that the tokens become likelier. bench: measure "
     "the passes of either at several depths of the prefetch, against each other and against the "
     "same work alone. plan: predict time and memory of either on any machine.)"},
    {"RequiredKeyOfTheJobMissing",
     good_deck,
     {"--job.name=train", "--train.learning_rate=1"},
     "score.deck: train.steps is required and not given (" + known_key("train.steps").help + ")"},
    {"RequiredKeyOfTheJobMisspelt",
     good_deck,
     {"--job.name=train", "--train.learning_rate=1", "--train.stpes=9"},
     "command line: unknown key train.stpes (did you mean train.steps?)"},
    {"NoModel",
     training_deck.substr(0, training_deck.find("[model]")) +
         training_deck.substr(training_deck.find("[data]")),
     {},
     "score.deck: train needs model.weights, a weights file to begin with, or model.config, for "
     "random weights of its model; neither is given"},
    {"MisspeltModelIsToldOnce",
     training_deck,
     {"--model.weights=", "--model.cnofig=c.json"},
     "command line: unknown key model.cnofig (did you mean model.config?)"},
    {"TwoModels",
     training_deck,
     {"--model.config=c.json"},
     "command line: model.config = c.json does not go with model.weights = model.h5 "
     "(score.deck:4): a weights file has a config of its own; take one of the two away"},
    {"NoWeightsToScoreWith",
     good_deck.substr(0, good_deck.find("[model]")) + good_deck.substr(good_deck.find("[data]")),
     {"--model.config=c.json"},
     "score.deck: model.weights is required and not given (" + known_key("model.weights").help +
         ")"},
    {"TrainingKeyOfTheWrongTypeInAScoreDeck",
     after_good("[train]\nlearning_rate = fast\n"),
     {},
     "score.deck:12: train.learning_rate takes a number, 1e-12 to 1000, not \"fast\""},
    {"LineUnknownKey",
     good_deck,
     {"--fsdp.forward_prefech=1"},
     "command line: unknown key fsdp.forward_prefech (did you mean fsdp.forward_prefetch?)"},
    {"LineAbbreviatedKey",
     good_deck,
     {"--fsdp.forward_pre=1"},
     "command line: unknown key fsdp.forward_pre (did you mean fsdp.forward_prefetch?)"},
    {"LineShortAbbreviation",
     good_deck,
     {"--fsdp.f=1"},
     "command line: unknown key fsdp.f (did you mean fsdp.forward_prefetch?)"},
    {"LineWrongSection",
     good_deck,
     {"--job.shard=1"},
     "command line: unknown key job.shard (wrong section: did you mean mesh.shard?)"},
    {"LineUnknownSection",
     good_deck,
     {"--xyzzy.plugh=1"},
     "command line: unknown key xyzzy.plugh (sections: job, model, data, device, mesh, "
     "fsdp, comm, batch, score, train, checkpoint, bench, plan, machine, output)"},
    {"LineWrongCase",
     good_deck,
     {"--FSDP.Forward-Prefetch=1"},
     "command line: unknown key FSDP.Forward_Prefetch (case matters: did you mean "
     "fsdp.forward_prefetch?)"},
    {"LineWithoutSection",
     good_deck,
     {"--forward_prefetch=1"},
     "command line: \"--forward_prefetch=1\" is not --section.key=value"},
    {"LineWithAnEmptySection",
     good_deck,
     {"--.name=1"},
     "command line: \"--.name=1\" is not --section.key=value"},
    {"LineWithoutValue",
     good_deck,
     {"--fsdp.forward_prefetch"},
     "command line: \"--fsdp.forward_prefetch\" is not --section.key=value"},
    {"LineStrayWord",
     good_deck,
     {"fsdp.forward_prefetch=1"},
     "command line: \"fsdp.forward_prefetch=1\" is not --section.key=value"},
    {"LineOneDash",
     good_deck,
     {"-fsdp.forward_prefetch=1"},
     "command line: \"-fsdp.forward_prefetch=1\" is not --section.key=value"},
    {"LineTwice",
     good_deck,
     {"--mesh.shard=1", "--mesh.shard=1"},
     "command line: mesh.shard is given twice"},
    {"LineUnit",
     good_deck,
     {"--fsdp.forward_prefetch=8 parsecs"},
     "command line: fsdp.forward_prefetch takes auto or a whole number, 0 to 64, not \"8 "
     "parsecs\""},
    {"LineOutOfRange",
     good_deck,
     {"--fsdp.forward_prefetch=-1"},
     "command line: fsdp.forward_prefetch is out of range: it takes auto or a whole number, 0 to "
     "64, not "
     "\"-1\""},
};

class T05DeckRefusal : public testing::TestWithParam<Fault> {};

TEST_P(T05DeckRefusal, IsOneMessageWithPlaceKeyReasonAndNearestKey) {
    ASSERT_EQ(refusal(good_deck), "");
    EXPECT_EQ(refusal(GetParam().deck, GetParam().overrides), GetParam().said);
}

INSTANTIATE_TEST_SUITE_P(Faults, T05DeckRefusal, testing::ValuesIn(faults),
                         [](const auto& fault) { return std::string(fault.param.name); });

TEST(DeckRefusal, TellsAllErrorsAtOnceInTheOrderOfTheLinesThenTheCommandLine) {
    const std::string said = refusal("title = x\n"
                                     "[job]\n"
                                     "name = scroe\n"
                                     "strict = maybe\n"
                                     "[modle]\n"
                                     "weights = w.h5\n"
                                     "[data]\n"
                                     "tokens = t.h5\n"
                                     "max_documents = 1e3\n"
                                     "tokens = u.h5\n"
                                     "nonsense\n",
                                     {"--batch.tokens=0", "--mesh.shrad=1"});
    EXPECT_EQ(
        said,
        "score.deck:1: key title comes before any section (write [job] and below it title = "
        "...)\n"
        "score.deck:3: job.name takes score, train, bench or plan, not \"scroe\" (did you mean "
        "score?)\n"
        "score.deck:4: job.strict takes true or false, not \"maybe\"\n"
        "score.deck:5: unknown section [modle] (did you mean [model]?)\n"
        "score.deck:9: data.max_documents takes a whole number, 0 or more, not \"1e3\"\n"
        "score.deck:10: data.tokens is given twice (first at score.deck:8)\n"
        "score.deck:11: \"nonsense\" is not a line of a deck: write [section], key = value or "
        "# comment\n"
        "command line: unknown key mesh.shrad (did you mean mesh.shard?)\n"
        "command line: batch.tokens is out of range: it takes a whole number, 1 to "
        "2147483647, not \"0\"\n"
        "score.deck: output.file is required and not given (Results file.)");
}

TEST(DeckRefusal, GivesNoHintThatIsFarFetched) {
    EXPECT_EQ(refusal(good_deck, {"--data.xyzzy=4"}),
              "command line: unknown key data.xyzzy (keys of [data]: tokens, window, stride, "
              "max_documents, any_tokenizer)");
}

TEST(DeckRefusal, TakesNoWindowThatScoresNothingAndNoStrideThatCarriesNothing) {
    EXPECT_EQ(
        refusal(good_deck, {"--data.window=1"}),
        "command line: data.window = 1 can score nothing: a token alone has no context; set 2 "
        "or more, or 0 for whole documents");
    EXPECT_EQ(refusal(good_deck, {"--data.window=4", "--data.stride=4"}),
              "command line: data.stride = 4 does not go with data.window = 4 (command line): a "
              "stride of at most 3 carries the token that the next window's first score needs");
    EXPECT_EQ(refusal(good_deck, {"--data.window=4", "--data.stride=3"}), "");
}

TEST(DeckRefusal, TakesNoTrainingValuesThatCannotGoTogether) {
    EXPECT_EQ(refusal(training_deck, {"--train.min_learning_rate=1"}),
              "command line: train.min_learning_rate = 1 does not go with train.learning_rate = "
              "1e-3 (score.deck:9): train.schedule = cosine goes down to it");
    EXPECT_EQ(refusal(training_deck, {"--data.window=1"}),
              "command line: data.window = 1 can teach nothing: a token alone has no context; set "
              "2 or more, or 0 for whole documents");
    EXPECT_EQ(refusal(training_deck, {"--train.evaluate=r.h5", "--output.file=r.h5"}),
              "command line: output.file = r.h5 does not go with train.evaluate = r.h5 (command "
              "line): it would be overwritten");
}

TEST(DeckRefusal, JudgesNoPairsOfWhichTheJobLooksAtOneAlone) {
    for (const char* word :
         {"--model.config=c.json", "--train.evaluate=results.h5", "--train.min_learning_rate=1"}) {
        EXPECT_EQ(refusal(good_deck, {word}), "") << word;
    }
    EXPECT_EQ(refusal(training_deck, {"--data.window=4", "--data.stride=4"}), "");
    EXPECT_EQ(refusal(training_deck, {"--train.schedule=constant", "--train.min_learning_rate=1"}),
              "");
}

TEST(DeckRefusal, AsksEachJobForItsOwnKeys) {
    EXPECT_EQ(refusal(good_deck), "");
    EXPECT_EQ(refusal(training_deck), "");
    EXPECT_EQ(refusal(training_deck, {"--model.weights=", "--model.config=c.json"}), "");
    EXPECT_EQ(refusal(good_deck, {"--model.weights="}),
              "command line: model.weights needs a value");
}

TEST(DeckRefusal, CutsLongAndUnprintableTextInMessages) {
    const std::string said = refusal(good_deck + "[fsdp]\n" + std::string(1 << 20, 'k') + " = 1\n");
    EXPECT_LT(said.size(), 300u);
    EXPECT_EQ(refusal(good_deck + "[fsdp]\n\x1B[2J\n"),
              "score.deck:12: \"?[2J\" is not a line of a deck: write [section], key = value or # "
              "comment");
}

} // namespace
} // namespace foregather::deck::test
