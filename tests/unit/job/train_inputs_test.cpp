// SPDX-License-Identifier: Apache-2.0
// The files of a training run: opened, compared, listed, or refused with what is wrong.
#include "../../../src/job/train_inputs.hpp"

#include <foregather/io/digest.hpp>

#include "training_fixture.hpp"

namespace foregather::job {
namespace {

using io::testing::expect_refused;
using io::testing::spill;

class TrainInputsTest : public testing::Test {
protected:
    TrainInputs open(const std::vector<std::string>& words = {}, bool check = true) const {
        return open_train_inputs(folder.deck(words), check);
    }
    // The notes as one text.
    static std::string notes_of(const TrainInputs& in) {
        std::string text;
        for (const std::string& note : in.notes) {
            text += note + "\n";
        }
        return text;
    }
    TrainingFolder folder;
};

TEST_F(TrainInputsTest, WithAConfigHaveNoWeightsAndAllElse) {
    const TrainInputs in = open();
    EXPECT_EQ(in.weights, nullptr);
    EXPECT_EQ(in.evaluation, nullptr);
    EXPECT_EQ(in.config_json, small_config);
    EXPECT_EQ(in.config_path, folder.in("c.json"));
    EXPECT_EQ(in.config.vocabulary, 50);
    EXPECT_EQ(in.training.initializer_range, 0.03);
    EXPECT_EQ(in.items.items.size(), 3u);
    EXPECT_EQ(in.items.targets, 4 + 8 + 11);
    EXPECT_TRUE(in.evaluation_items.items.empty());
    EXPECT_EQ(in.tokens_sha256, io::sha256_of_file(folder.in("t.h5")));
    EXPECT_EQ(in.chain.units.size(), 2u); // embedding, layer
    EXPECT_EQ(open({}, false).tokens_sha256, "");
}

TEST_F(TrainInputsTest, WithWeightsHaveTheConfigOfThese) {
    const TrainInputs in = open({"--model.weights=" + folder.in("w.h5")});
    ASSERT_NE(in.weights, nullptr);
    EXPECT_EQ(in.config_json, small_config);
    EXPECT_EQ(in.config_path, folder.in("w.h5"));
    write_model(folder.in("torn.h5"), small_config, false);
    expect_refused({"torn.h5", "model.norm.weight"},
                   [&] { open({"--model.weights=" + folder.in("torn.h5")}); });
}

TEST_F(TrainInputsTest, EvaluateAllDocumentsOfTheirOwnFile) {
    write_documents(folder.in("e.h5"), {4, 6, 8});
    const TrainInputs in = open(
        {"--train.evaluate=" + folder.in("e.h5"), "--data.max_documents=1", "--data.window=3"});
    ASSERT_NE(in.evaluation, nullptr);
    EXPECT_EQ(in.items.targets, 4);
    EXPECT_EQ(in.evaluation_items.targets, 3 + 5 + 7);
    EXPECT_EQ(in.evaluation_items.longest, 3);
}

TEST_F(TrainInputsTest, RefuseIdsBeyondTheVocabularyInEitherFile) {
    write_documents(folder.in("many.h5"), {16, 16, 16, 16});
    expect_refused({"many.h5", "50"}, [&] { open({"--data.tokens=" + folder.in("many.h5")}); });
    const std::vector<std::string> words = {"--train.evaluate=" + folder.in("many.h5")};
    expect_refused({"many.h5", "50"}, [&] { open(words); });
    EXPECT_NO_THROW(open(words, false)); // another rank reads them
}

TEST_F(TrainInputsTest, RefuseTokenizersThatDiffer) {
    write_documents(folder.in("a.h5"), {5}, std::string(64, 'a'));
    write_documents(folder.in("b.h5"), {5}, std::string(64, 'b'));
    const std::string tokens = "--data.tokens=" + folder.in("a.h5");
    EXPECT_EQ(open({tokens}).tokenizer_sha256, std::string(64, 'a'));
    EXPECT_EQ(notes_of(open({tokens})), "");
    const std::vector<std::string> both = {tokens, "--train.evaluate=" + folder.in("b.h5")};
    expect_refused({"b.h5", "a.h5", "data.any_tokenizer"}, [&] { open(both); });
    auto any = both;
    any.push_back("--data.any_tokenizer=true");
    EXPECT_NE(notes_of(open(any)).find("accepted, as data.any_tokenizer = true"),
              std::string::npos);
    // Weights that name none leave it to be told.
    EXPECT_NE(notes_of(open({"--model.weights=" + folder.in("w.h5"), tokens}))
                  .find("w.h5 does not say which tokenizer it belongs to"),
              std::string::npos);
}

TEST_F(TrainInputsTest, RefuseWhatIsLongerThanTheModelsPositions) {
    expect_refused({"command line: data.window = 17", "16 positions"},
                   [&] { open({"--data.window=17"}); });
    write_documents(folder.in("long.h5"), {17});
    expect_refused({"long.h5", "17 tokens", "data.window"},
                   [&] { open({"--data.tokens=" + folder.in("long.h5")}); });
}

TEST_F(TrainInputsTest, TellOfLongDocumentsSmallEpochsAndDocumentsWithoutTargets) {
    write_documents(folder.in("odd.h5"), {5, 1, 12});
    const std::string notes = notes_of(open(
        {"--data.tokens=" + folder.in("odd.h5"), "--batch.tokens=8", "--train.batch_documents=3"}));
    EXPECT_NE(notes.find("1 documents are longer than batch.tokens = 8: each has a pack of its "
                         "own, the longest 12 tokens"),
              std::string::npos)
        << notes;
    EXPECT_NE(notes.find("1 documents have no token to learn, and are left out"), std::string::npos)
        << notes;
    EXPECT_NE(notes.find("train.batch_documents = 3, but an epoch has only 2"), std::string::npos)
        << notes;
}

TEST_F(TrainInputsTest, RefuseAConfigThatCannotBeReadOrTrained) {
    for (const std::string& path : {folder.in("absent.json"), folder.in("")}) {
        expect_refused({"command line: model.config", path, "cannot be read as a config.json"},
                       [&] { open({"--model.config=" + path}); });
    }
    const auto refused = [&](const std::string& text, const std::vector<std::string>& words) {
        spill(folder.in("x.json"), text);
        expect_refused(words, [&] { open({"--model.config=" + folder.in("x.json")}); });
    };
    refused("{", {"x.json", "not JSON"});
    std::string text = small_config;
    refused(text.replace(text.find("0.03"), 4, "\"wide\""),
            {"x.json: initializer_range: \"wide\""});
    text = small_config;
    refused(text.replace(text.find("0.03"), 4, "0"), {"x.json: initializer_range: 0 is not a "});
    text = small_config;
    refused(text.replace(text.find("0.03"), 4, "0.03, \"attention_dropout\": 0.1"),
            {"x.json: attention_dropout: 0.1 is not supported in training"});
    text = small_config;
    spill(folder.in("x.json"),
          text.replace(text.find(",\n        \"initializer_range\": 0.03"),
                       std::string(",\n        \"initializer_range\": 0.03").size(), ""));
    const TrainInputs in = open({"--model.config=" + folder.in("x.json")});
    EXPECT_EQ(in.training.initializer_range, 0.02);
    EXPECT_NE(notes_of(in).find("initializer_range is absent: 0.02 is taken"), std::string::npos);
}

} // namespace
} // namespace foregather::job
