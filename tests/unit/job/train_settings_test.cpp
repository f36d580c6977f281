// SPDX-License-Identifier: Apache-2.0
// Which changes of a deck a training run may go on with, and which keys can do nothing beside
// others.
#include "../../../src/job/train_settings.hpp"

#include <filesystem>
#include <map>

#include "../../../src/job/settle_train.hpp"
#include "training_fixture.hpp"

namespace foregather::job {
namespace {

const Machine machine = {"host", "oneDNN 3", "fp32"};

class TrainSettingsTest : public testing::Test {
protected:
    Settings settings(const std::vector<std::string>& words = {},
                      const Machine& on = machine) const {
        const deck::Deck deck = folder.deck(words);
        return train_settings(deck, open_train_inputs(deck, true), on);
    }
    std::string changed(const std::vector<std::string>& words, const Machine& on = machine) const {
        return changed_settings(settings(), settings(words, on));
    }
    std::vector<std::string> told(const std::vector<std::string>& words,
                                  const Machine& on = machine) const {
        return told_changes(settings(), settings(words, on));
    }
    TrainingFolder folder;
};

TEST_F(TrainSettingsTest, OfAnUnchangedRunDifferInNothing) {
    EXPECT_EQ(changed({}), "");
    EXPECT_TRUE(told({}).empty());
    EXPECT_EQ(changed({"--train.learning_rate=0.001", "--train.beta1=0.90"}), "");
}

TEST_F(TrainSettingsTest, NameWhatDecidesTheNumbersOfTheStepsToCome) {
    EXPECT_EQ(changed({"--train.learning_rate=0.002"}), "train.learning_rate was 0.001, is 0.002");
    EXPECT_EQ(changed({"--train.seed=1", "--train.beta2=0.99"}),
              "train.beta2 was 0.95, is 0.99\ntrain.seed was 0, is 1");
    for (const char* word :
         {"--train.schedule=linear", "--train.warmup_steps=1", "--train.min_learning_rate=1e-5",
          "--train.epsilon=1e-7", "--train.weight_decay=0", "--train.decay=all",
          "--train.gradient_clip_norm=0", "--train.accumulate=2", "--train.batch_documents=2",
          "--train.shuffle=false", "--fsdp.reduce_dtype=bf16", "--batch.tokens=64",
          "--data.window=4", "--data.max_documents=1", "--model.init_seed=1"}) {
        const std::string key = std::string(word).substr(2, std::string(word).find('=') - 2);
        EXPECT_NE(changed({word}).find(key + " was "), std::string::npos)
            << word << changed({word});
    }
    EXPECT_EQ(changed({}, {"host", "oneDNN 3", "bf16"}), "type of weights was fp32, is bf16");
}

TEST_F(TrainSettingsTest, TellWhatMayChange) {
    EXPECT_EQ(changed({}, {"cuda", "cuBLAS", "fp32"}), "");
    EXPECT_EQ(
        told({}, {"cuda", "cuBLAS", "fp32"}),
        (std::vector<std::string>{"device was host, is cuda", "products was oneDNN 3, is cuBLAS"}));
    const std::vector<std::string> words = {"--mesh.shard=1",
                                            "--fsdp.backward_prefetch=2",
                                            "--fsdp.reshard_after_forward=false",
                                            "--train.recompute=none",
                                            "--train.evaluate_every=3",
                                            "--train.evaluate=" + folder.in("t.h5"),
                                            "--checkpoint.directory=x",
                                            "--checkpoint.every=2",
                                            "--train.max_bad_steps=9"};
    EXPECT_EQ(changed(words), "");
    std::vector<std::string> keys;
    for (const std::string& line : told(words)) {
        keys.push_back(line.substr(0, line.find(' ')));
    }
    EXPECT_EQ(keys, (std::vector<std::string>{"mesh.shard", "fsdp.backward_prefetch",
                                              "fsdp.reshard_after_forward", "train.recompute",
                                              "train.evaluate", "train.evaluate_every"}));
}

TEST_F(TrainSettingsTest, LetOnlyAConstantScheduleBeMadeLonger) {
    EXPECT_EQ(changed({"--train.steps=20"}),
              "train.steps that train.schedule is laid out over was 10, is 20");
    const Settings ten = settings({"--train.schedule=constant"});
    const Settings twenty = settings({"--train.schedule=constant", "--train.steps=20"});
    EXPECT_EQ(changed_settings(ten, twenty), "");
    EXPECT_EQ(told_changes(ten, twenty), (std::vector<std::string>{"train.steps was 10, is 20"}));
}

TEST_F(TrainSettingsTest, LeaveOutKeysThatOthersMakeInert) {
    const std::vector<std::string> eight = {"--train.batch_documents=8"};
    EXPECT_EQ(changed_settings(settings(eight), settings({eight[0], "--train.accumulate=4"})), "");
    EXPECT_EQ(changed_settings(settings({"--train.shuffle=false"}),
                               settings({"--train.shuffle=false", "--train.seed=4"})),
              "");
}

TEST_F(TrainSettingsTest, CompareFilesByTheirContent) {
    const std::string weights = "--model.weights=" + folder.in("w.h5");
    const Settings before = settings({weights});
    std::filesystem::copy_file(folder.in("t.h5"), folder.in("copy.h5"));
    std::filesystem::copy_file(folder.in("w.h5"), folder.in("v.h5"));
    EXPECT_EQ(changed_settings(before, settings({"--model.weights=" + folder.in("v.h5"),
                                                 "--data.tokens=" + folder.in("copy.h5")})),
              "");
    write_documents(folder.in("other.h5"), {5, 9, 11});
    EXPECT_EQ(
        changed_settings(before, settings({weights, "--data.tokens=" + folder.in("other.h5")}))
            .rfind("tokens was sha256 ", 0),
        0u);
    EXPECT_EQ(changed_settings(before, settings()).rfind("weights was ", 0), 0u);
}

TEST_F(TrainSettingsTest, AreLinesOfText) {
    for (const auto& [name, value] : settings({"--job.title=a = b"})) {
        EXPECT_EQ((name + value).find('\n'), std::string::npos) << name;
        EXPECT_EQ(name.find(" = "), std::string::npos) << name;
        EXPECT_FALSE(value.empty()) << name;
    }
}

std::map<std::string, std::string> inert(const deck::Deck& deck) {
    std::map<std::string, std::string> reasons;
    for (const InertKey& key : inert_training_keys(deck.sections())) {
        EXPECT_TRUE(deck::known_key(key.key).serves("train")) << key.key;
        reasons[key.key] = key.reason;
    }
    return reasons;
}

TEST_F(TrainSettingsTest, InertKeysAreThoseWhoseMeaningAnotherTakesAway) {
    const auto keys = [&](const std::vector<std::string>& words) {
        std::string text;
        for (const auto& [key, reason] : inert(folder.deck(words))) {
            text += key + " ";
        }
        return text;
    };
    const std::string plain = "checkpoint.every checkpoint.keep checkpoint.load_optimizer "
                              "checkpoint.resume train.evaluate_every ";
    EXPECT_EQ(keys({}), plain);
    EXPECT_EQ(keys({"--checkpoint.directory=x", "--train.evaluate=t.h5"}), "");
    EXPECT_EQ(
        keys({"--checkpoint.directory=x", "--train.evaluate=t.h5", "--checkpoint.resume=none"}),
        "checkpoint.load_optimizer ");
    EXPECT_EQ(keys({"--checkpoint.resume=ck/step-00000001.h5"}),
              "checkpoint.every checkpoint.keep train.evaluate_every ");
    const std::vector<std::pair<std::string, std::string>> pairs = {
        {"--train.schedule=constant", "train.min_learning_rate"},
        {"--train.weight_decay=0", "train.decay"},
        {"--train.batch_documents=1", "train.accumulate"},
        {"--train.shuffle=false", "train.seed"},
        {"--output.timeline=false", "output.timeline_passes"},
        {"--model.weights=" + folder.in("w.h5"), "model.init_seed"}};
    for (const auto& [word, key] : pairs) {
        EXPECT_EQ(inert(folder.deck({word})).count(key), 1u) << word;
        EXPECT_EQ(inert(folder.deck()).count(key), 0u) << key;
    }
    const deck::Deck deck = folder.deck({"--train.evaluate_every=2"});
    deck::Ledger ledger(deck);
    settle_training_deck(ledger, deck);
    EXPECT_EQ(ledger.inert_notes(),
              (std::vector<std::string>{"command line: train.evaluate_every = 2 is inert: "
                                        "train.evaluate is empty: nothing is evaluated"}));
}

} // namespace
} // namespace foregather::job
