// SPDX-License-Identifier: Apache-2.0
// The law that no key is dropped: each ends in one state, and the states decide the exit status.
// What a job observes is not tested here.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/deck/ledger.hpp>

#include "good_deck.hpp"

namespace foregather::deck::test {
namespace {

using base::Status;

// Of the job score.
std::vector<std::string> own_keys() {
    std::vector<std::string> keys;
    for (const KeyInfo& info : known_keys()) {
        if (info.serves("score")) {
            keys.push_back(info.key);
        }
    }
    return keys;
}

// Honours every key that has no state yet.
void honour_the_rest(Ledger& ledger) {
    for (const Ledger::Row& row : std::vector<Ledger::Row>(ledger.rows())) {
        if (row.state == "unproved") {
            ledger.honour(row.key, "seen");
        }
    }
}

Ledger::Row row_of(const Ledger& ledger, const std::string& key) {
    for (const Ledger::Row& row : ledger.rows()) {
        if (row.key == key) {
            return row;
        }
    }
    return {};
}

TEST(Ledger, HasARowForEveryKeyWithItsValueAndOrigin) {
    const Deck deck = parsed(good_deck, {"--output.log=${L}"}, {{"L", "x.log"}});
    const Ledger ledger(deck);
    ASSERT_EQ(ledger.rows().size(), known_keys().size());
    for (std::size_t i = 0; i < ledger.rows().size(); ++i) {
        EXPECT_EQ(ledger.rows()[i].key, known_keys()[i].key);
        EXPECT_EQ(ledger.rows()[i].state, known_keys()[i].serves("score") ? "unproved" : "inert");
    }
    EXPECT_EQ(row_of(ledger, "batch.tokens").value, "512");
    EXPECT_EQ(row_of(ledger, "batch.tokens").default_text, "2048");
    EXPECT_EQ(row_of(ledger, "batch.tokens").origin, "deck");
    EXPECT_EQ(row_of(ledger, "output.log").value, "${L}");
    EXPECT_EQ(row_of(ledger, "output.log").origin, "command line");
    EXPECT_EQ(row_of(ledger, "mesh.shard").origin, "default");
}

TEST(Ledger, IsDoneWhenEveryKeyHasAGoodState) {
    Ledger ledger(parsed(good_deck, {"--fsdp.forward_prefetch=9", "--comm.link_rate=1 GB/s"}));
    ledger.clamp("fsdp.forward_prefetch", "5", "the model has 6 units");
    ledger.inert("comm.link_rate", "one rank: nothing is gathered");
    ledger.honour("mesh.shard", "1", "one rank");
    honour_the_rest(ledger);
    EXPECT_EQ(ledger.close(), Status::done);
    EXPECT_TRUE(ledger.problems().empty());
    const Ledger::Row clamped = row_of(ledger, "fsdp.forward_prefetch");
    EXPECT_EQ(clamped.state, "clamped");
    EXPECT_EQ(clamped.observed, "5");
    EXPECT_EQ(clamped.reason, "the model has 6 units");
    EXPECT_EQ(row_of(ledger, "comm.link_rate").state, "inert");
    EXPECT_EQ(row_of(ledger, "mesh.shard").state, "honoured");
    EXPECT_EQ(row_of(ledger, "mesh.shard").observed, "1");
}

TEST(Ledger, EndsWithStatusThreeWhenAKeyWasNotHonoured) {
    Ledger ledger(parsed(good_deck, {"--fsdp.forward_prefetch=2"}));
    ledger.dishonour("fsdp.forward_prefetch", "0", "no gather was issued ahead");
    honour_the_rest(ledger);
    EXPECT_EQ(ledger.close(), Status::not_honoured);
    EXPECT_EQ(static_cast<int>(ledger.close()), 3);
    EXPECT_EQ(ledger.problems(),
              (std::vector<std::string>{"command line: fsdp.forward_prefetch = 2 was not honoured: "
                                        "observed 0: no gather was issued ahead"}));
    EXPECT_EQ(row_of(ledger, "fsdp.forward_prefetch").state, "not honoured");
}

TEST(Ledger, EndsWithStatusThreeWhenASetKeyOrADefaultWasForgotten) {
    for (const char* forgotten : {"batch.tokens", "comm.timeout"}) {
        Ledger ledger(parsed(good_deck));
        for (const std::string& key : own_keys()) {
            if (key != forgotten) {
                ledger.honour(key, "seen");
            }
        }
        EXPECT_EQ(ledger.close(), Status::not_honoured);
        ASSERT_EQ(ledger.problems().size(), 1u);
        EXPECT_NE(ledger.problems()[0].find(forgotten), std::string::npos);
        EXPECT_NE(ledger.problems()[0].find("unproved"), std::string::npos);
        EXPECT_EQ(row_of(ledger, forgotten).state, "unproved");
        ledger.honour(forgotten, "seen after all");
        EXPECT_EQ(ledger.close(), Status::done);
        EXPECT_TRUE(ledger.problems().empty());
    }
}

TEST(Ledger, CallsKeysOfOtherJobsInertFromTheStart) { // a7
    Ledger ledger(parsed(good_deck, {"--train.learning_rate=1e-4"}));
    EXPECT_EQ(row_of(ledger, "train.learning_rate").state, "inert");
    EXPECT_EQ(row_of(ledger, "train.learning_rate").value, "1e-4");
    EXPECT_EQ(row_of(ledger, "train.learning_rate").reason, "key of job train");
    EXPECT_EQ(row_of(ledger, "train.steps").state, "inert");
    EXPECT_EQ(ledger.inert_notes(),
              (std::vector<std::string>{
                  "command line: train.learning_rate = 1e-4 is inert: key of job train"}));
    EXPECT_NO_THROW(ledger.refuse_if_strict());
    EXPECT_THROW(ledger.honour("train.learning_rate", "1e-4"), base::Error);
    EXPECT_THROW(
        Ledger(parsed(good_deck, {"--train.steps=1", "--job.strict=true"})).refuse_if_strict(),
        base::Error);
    const Ledger training(parsed(training_deck, {"--score.top_k=3", "--data.stride=1"}));
    EXPECT_EQ(training.inert_notes().size(), 2u);
    EXPECT_EQ(row_of(training, "train.learning_rate").state, "unproved");
}

TEST(Ledger, RefusesASecondStateAndAnUnknownKey) {
    Ledger ledger(parsed(good_deck));
    ledger.honour("mesh.shard", "1");
    EXPECT_NO_THROW(ledger.honour("mesh.shard", "1"));
    EXPECT_THROW(ledger.honour("mesh.shard", "2"), base::Error);
    EXPECT_THROW(ledger.inert("mesh.shard", "one rank"), base::Error);
    EXPECT_THROW(ledger.clamp("mesh.shard", "1", "why"), base::Error);
    EXPECT_THROW(ledger.dishonour("mesh.shard", "1", "why"), base::Error);
    EXPECT_EQ(row_of(ledger, "mesh.shard").state, "honoured");
    EXPECT_THROW(ledger.honour("mesh.shrad", "1"), base::Error);
    ledger.inert("comm.link_rate", "a");
    EXPECT_THROW(ledger.honour("comm.link_rate", ""), base::Error);
}

TEST(Ledger, TellsInertAndClampedKeysThatTheUserSet) {
    Ledger ledger(parsed(good_deck + "[comm]\nlink_rate = 1 GB/s\n", {"--mesh.shard=4"}));
    ledger.inert("comm.link_rate", "one rank: nothing is gathered");
    ledger.inert("fsdp.piece_bytes", "a default");
    ledger.clamp("mesh.shard", "2", "two ranks");
    ledger.clamp("fsdp.forward_prefetch", "0", "a default");
    EXPECT_EQ(ledger.inert_notes(),
              (std::vector<std::string>{
                  "score.deck:12: comm.link_rate = 1 GB/s is inert: one rank: nothing is "
                  "gathered"}));
    EXPECT_EQ(
        ledger.clamp_notes(),
        (std::vector<std::string>{"command line: mesh.shard = 4 is clamped to 2: two ranks"}));
}

TEST(Ledger, RefusesInertAndClampedKeysOfAStrictJob) {
    for (const bool strict : {false, true}) {
        Ledger ledger(
            parsed(good_deck + "[comm]\nlink_rate = 1 GB/s\n",
                   {"--mesh.shard=4", strict ? "--job.strict=true" : "--job.strict=false"}));
        ledger.inert("fsdp.piece_bytes", "a default");
        EXPECT_NO_THROW(ledger.refuse_if_strict());
        ledger.inert("comm.link_rate", "one rank");
        ledger.clamp("mesh.shard", "2", "two ranks");
        if (!strict) {
            EXPECT_NO_THROW(ledger.refuse_if_strict());
            continue;
        }
        try {
            ledger.refuse_if_strict();
            ADD_FAILURE() << "accepted";
        } catch (const base::Error& error) {
            EXPECT_EQ(error.status(), Status::refused);
            EXPECT_EQ(std::string(error.what()),
                      "job.strict = true refuses keys that are inert or clamped:\n"
                      "score.deck:12: comm.link_rate = 1 GB/s is inert: one rank\n"
                      "command line: mesh.shard = 4 is clamped to 2: two ranks");
        }
    }
}

TEST(Ledger, RefusesAStrictJobForAClampAlone) {
    Ledger ledger(parsed(good_deck, {"--mesh.shard=4", "--job.strict=true"}));
    ledger.clamp("mesh.shard", "2", "two ranks");
    EXPECT_THROW(ledger.refuse_if_strict(), base::Error);
}

} // namespace
} // namespace foregather::deck::test
