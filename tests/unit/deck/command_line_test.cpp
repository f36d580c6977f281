// SPDX-License-Identifier: Apache-2.0
// The grammar of the program's command line: what each mode takes and what is refused.
// Keys and values of overrides are tested in refusals_test.cpp and values_test.cpp.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "good_deck.hpp"

namespace foregather::deck::test {
namespace {

using Mode = CommandLine::Mode;

CommandLine read(const std::vector<const char*>& args) { return parse_command_line(args); }

std::string refused(const std::vector<const char*>& args) {
    try {
        read(args);
    } catch (const base::Error& error) {
        return error.status() == base::Status::refused ? error.what() : "wrong status";
    }
    return "";
}

TEST(CommandLine, RunsADeckWithOverrides) {
    const CommandLine line = read({"--mesh.shard=2", "score.deck", "--job.title=a b"});
    EXPECT_EQ(line.mode, Mode::run);
    EXPECT_EQ(line.deck_path, "score.deck");
    EXPECT_EQ(line.overrides, (std::vector<std::string>{"--mesh.shard=2", "--job.title=a b"}));
    EXPECT_EQ(line.ranks, 0);
    EXPECT_EQ(line.ranks_per_node, 0);
}

TEST(CommandLine, ChecksADeckForANumberOfRanks) {
    const CommandLine line =
        read({"--check", "score.deck", "--ranks", "8", "--ranks-per-node=4", "--mesh.shard=2"});
    EXPECT_EQ(line.mode, Mode::check);
    EXPECT_EQ(line.deck_path, "score.deck");
    EXPECT_EQ(line.ranks, 8);
    EXPECT_EQ(line.ranks_per_node, 4);
    EXPECT_EQ(line.overrides.size(), 1u);
    EXPECT_EQ(read({"--check", "score.deck"}).ranks, 0);
}

TEST(CommandLine, ShowsHelpTemplatesAndVersion) {
    EXPECT_EQ(read({"--help"}).mode, Mode::help);
    EXPECT_EQ(read({"--help"}).help_topic, "");
    EXPECT_EQ(read({"--help", "fsdp.forward_prefetch"}).help_topic, "fsdp.forward_prefetch");
    EXPECT_EQ(read({"--template", "score"}).mode, Mode::templ);
    EXPECT_EQ(read({"--template", "score"}).template_job, "score");
    EXPECT_EQ(read({"--version"}).mode, Mode::version);
    EXPECT_EQ(read({"--self-test"}).mode, Mode::self_test);
}

TEST(CommandLine, RefusesNothingWithThreeLinesOfUsage) {
    const std::string said = refused({});
    EXPECT_EQ(said.rfind("usage: foregather DECK", 0), 0u);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2);
    EXPECT_NE(said.back(), '\n');
}

TEST(CommandLine, RefusesAMissingDeckOrJob) {
    EXPECT_EQ(refused({"--mesh.shard=2"}).rfind("command line: no deck is named\nusage: ", 0), 0u);
    EXPECT_EQ(refused({"--check"}).rfind("command line: no deck is named\nusage: ", 0), 0u);
    EXPECT_EQ(refused({"--template"}),
              "command line: --template needs the name of a job: write --template score");
    EXPECT_NE(refused({""}), "");
}

TEST(CommandLine, RefusesStrayWords) {
    EXPECT_EQ(refused({"a.deck", "b.deck"}), "command line: stray word \"b.deck\"");
    EXPECT_EQ(refused({"a.deck", "mesh.shard=2"}),
              "command line: stray word \"mesh.shard=2\" (did you mean --mesh.shard=2?)");
    EXPECT_EQ(refused({"--version", "x"}), "command line: stray word \"x\"");
    EXPECT_NE(refused({"--help", "a", "b"}), "");
    EXPECT_NE(refused({"--template", "score", "b"}), "");
    EXPECT_NE(refused({"a.deck", ""}), "");
}

TEST(CommandLine, RefusesUnknownAndAbbreviatedFlagsWithTheNearest) {
    EXPECT_EQ(refused({"a.deck", "--chek"}),
              "command line: unknown flag --chek (did you mean --check?)");
    EXPECT_EQ(refused({"a.deck", "--temp"}),
              "command line: unknown flag --temp (did you mean --template?)");
    EXPECT_EQ(refused({"-h", "a.deck"}), "command line: unknown flag -h (did you mean --help?)");
    EXPECT_EQ(refused({"a.deck", "--ranks_per_node=2"}),
              "command line: unknown flag --ranks_per_node (did you mean --ranks-per-node?)");
    EXPECT_EQ(refused({"a.deck", "--frobnicate"}),
              "command line: unknown flag --frobnicate (flags: --check, --template, --help, "
              "--version, --self-test, --ranks, --ranks-per-node, --section.key=value)");
    EXPECT_NE(refused({"a.deck", "--"}), "");
    EXPECT_NE(refused({"a.deck", "-"}), "");
    EXPECT_NE(refused({"a.deck", "-mesh.shard=2"}), "");
}

TEST(CommandLine, RefusesAnOverrideWithoutEqualsSign) {
    EXPECT_EQ(refused({"a.deck", "--mesh.shard"}),
              "command line: --mesh.shard has no value: write --mesh.shard=value");
    EXPECT_NE(refused({"a.deck", "--mesh.shard", "2"}), "");
}

TEST(CommandLine, RefusesFlagsThatDoNotGoTogether) {
    EXPECT_EQ(refused({"--check", "--help", "x"}),
              "command line: --check and --help do not go together");
    EXPECT_EQ(refused({"--help", "--help"}).rfind("command line: --help is given twice", 0), 0u);
    EXPECT_EQ(refused({"--template", "score", "--mesh.shard=2"}),
              "command line: --mesh.shard=2 does not go with --template");
    EXPECT_NE(refused({"--help", "--mesh.shard=2"}), "");
    EXPECT_NE(refused({"--version", "--mesh.shard=2"}), "");
    EXPECT_EQ(refused({"a.deck", "--ranks", "2"}),
              "command line: --ranks and --ranks-per-node go with --check only");
    EXPECT_EQ(refused({"--check", "a.deck", "--ranks-per-node", "2"}),
              "command line: --ranks-per-node needs --ranks");
    EXPECT_EQ(refused({"--help=fsdp"}), "command line: --help takes no =: write --help fsdp");
}

TEST(CommandLine, RefusesCountsOfRanksThatAreNone) {
    for (const char* count : {"0", "-3", "two", "", "1.5", "2147483648", "0x2", "+2", "2 "}) {
        const std::string joined = "--ranks=" + std::string(count);
        const std::string expected = "command line: --ranks takes a whole number, 1 to 2147483647, "
                                     "not \"" +
                                     std::string(count) + "\"";
        EXPECT_EQ(refused({"--check", "a.deck", "--ranks", count}), expected);
        EXPECT_EQ(refused({"--check", "a.deck", joined.c_str()}), expected);
    }
    EXPECT_NE(refused({"--check", "a.deck", "--ranks"}), "");
    EXPECT_NE(refused({"--check", "--ranks", "--mesh.shard=2", "a.deck"}), "");
    EXPECT_NE(refused({"--check", "a.deck", "--ranks", "2", "--ranks", "2"}), "");
}

TEST(CommandLine, TellsAllErrorsAtOnce) {
    const std::string said = refused({"a.deck", "b", "--chek", "--ranks=0", "--mesh.shard"});
    for (const char* part :
         {"stray word", "--chek", "--ranks takes", "--mesh.shard has no value"}) {
        EXPECT_NE(said.find(part), std::string::npos) << said;
    }
}

} // namespace
} // namespace foregather::deck::test
