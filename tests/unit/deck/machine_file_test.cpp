// SPDX-License-Identifier: Apache-2.0
// A machine file beneath a deck: whose lines win, what it may hold, where its errors are told; what
// a plan must have.
#include <string>

#include <gtest/gtest.h>

#include "good_deck.hpp"

namespace foregather::deck::test {
namespace {

const std::string plan_deck = "[job]\nname = plan\n[plan]\nmodel = m.json\nmachine = h.deck\n"
                              "ranks = 8\ntokens = 64\n[output]\nfile = r.h5\n";
const std::string machine = "# a machine\n[machine]\nname = quick\n"
                            "memory = 2 GiB, measured: a tool\n"
                            "node_latency = 2 us, assumed: a guess\n";

Deck plan(const std::string& file = machine, const std::string& more = "",
          const std::vector<std::string>& overrides = {}) {
    return Deck::parse(plan_deck + more, "p.deck", overrides, {}, MachineFile{"h.deck", file});
}

std::string refused_plan(const std::string& file, const std::string& more = "",
                         const std::vector<std::string>& overrides = {}) {
    try {
        plan(file, more, overrides);
    } catch (const base::Error& error) {
        return error.what();
    }
    return "";
}

TEST(MachineFile, LiesBeneathTheDeckAndTheCommandLine) {
    const Deck deck =
        plan(machine, "[machine]\nnode_latency = 3 us, fitted: a line\n", {"--machine.name=other"});
    EXPECT_EQ(deck.sections().machine.memory, (Sourced{2147483648, "measured", "a tool"}));
    EXPECT_EQ(deck.sections().machine.node_latency, (Sourced{3e-6, "fitted", "a line"}));
    EXPECT_EQ(deck.sections().machine.name, "other");
    EXPECT_EQ(setting_of(deck, "machine.memory").origin, "machine file");
    EXPECT_EQ(deck.where("machine.memory"), "h.deck:4: machine.memory");
    EXPECT_EQ(setting_of(deck, "machine.node_latency").origin, "deck");
    EXPECT_EQ(setting_of(deck, "machine.name").origin, "command line");
}

TEST(MachineFile, IsInTheDeckThatCanBeRunAgain) {
    const Deck deck = plan();
    const std::string text = deck.effective_text();
    EXPECT_NE(text.find("memory = 2 GiB, measured: a tool  # h.deck:4\n"), std::string::npos)
        << text;
    EXPECT_EQ(Deck::parse(text, "again.deck", {}, {}).sections(), deck.sections());
}

TEST(MachineFile, HoldsOneSectionAlone) {
    EXPECT_EQ(refused_plan("[machine]\nname = a\n[plan]\nranks = 2\n"),
              "h.deck:3: a machine file holds [machine] alone, not [plan]");
    EXPECT_EQ(refused_plan("[machine]\nnmae = a\n"),
              "h.deck:2: unknown key machine.nmae (did you mean machine.name?)");
    EXPECT_EQ(refused_plan("name = a\n").rfind("h.deck:1: key name comes before any section", 0),
              0u);
}

TEST(MachineFile, QuantitiesSayWhereTheyComeFrom) {
    const std::string how = ": behind the number, after a comma, stands its basis (measured, "
                            "published, assumed or fitted), a colon, and where it comes from";
    const auto said = [](const std::string& value) {
        return refused_plan("[machine]\nmemory = " + value + "\n");
    };
    EXPECT_EQ(said("2 GiB"), "h.deck:2: machine.memory has neither basis nor source" + how);
    EXPECT_EQ(said("2 GiB, measured"),
              "h.deck:2: machine.memory does not say where it comes from" + how);
    EXPECT_EQ(said("2 GiB, publishd: x"), "h.deck:2: machine.memory has the unknown basis "
                                          "\"publishd\" (did you mean published?)" +
                                              how);
    EXPECT_EQ(said("2 GB/s, assumed: x"),
              "h.deck:2: machine.memory takes a size in GiB, MiB, KiB, GB or MB, 1e+06 to 1e+15 "
              "bytes, with its basis and source, as in \"2 GiB, assumed: a guess\", not "
              "\"2 GB/s\"");
}

TEST(MachineFile, AQuantityMayBeLeftEmpty) {
    EXPECT_EQ(refused_plan("[machine]\nmemory =\n"), "");
    EXPECT_FALSE(plan("[machine]\nmemory =\n").sections().machine.memory.given());
}

TEST(PlanDeck, NeedsTimesFromOneSource) {
    EXPECT_EQ(refused_plan(machine, "", {"--plan.machine="}),
              "command line: plan.machine: a plan needs times; name a machine description here, or "
              "in plan.measured the results of a bench");
    EXPECT_EQ(refused_plan(machine, "", {"--plan.measured=b.h5"}),
              "p.deck:5: plan.machine = h.deck does not go with plan.measured = b.h5 (command "
              "line): times come from the one or from the other");
    EXPECT_EQ(refused_plan(machine, "[output]\nexisting = resume\n"),
              "p.deck:11: output.existing = resume: a plan is made anew in seconds; set refuse or "
              "replace");
    EXPECT_EQ(refused_plan(machine, "", {"--output.file=h.deck"}),
              "command line: output.file = h.deck does not go with plan.machine = h.deck "
              "(p.deck:5): it would be overwritten");
}

} // namespace
} // namespace foregather::deck::test
