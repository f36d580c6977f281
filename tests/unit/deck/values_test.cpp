// SPDX-License-Identifier: Apache-2.0
// What each key takes and refuses: types, units, ranges, and that each value reaches its member.
// A key of the table without a line here fails the build's tests.
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plan_probes.hpp"
#include "value_probes.hpp"

namespace foregather::deck::test {
namespace {

const Probes other_probes = {
    {"job.name",
     {"score", [](auto& s) { return s.job.name == "score"; }, {"", "benches", "Score", "all"}, {}}},
    {"job.strict", {"true", [](auto& s) { return s.job.strict; }, no_boolean, {}}},
    {"job.title",
     {"a b", [](auto& s) { return s.job.title == "a b"; }, {}, {std::string(1025, 't')}}},
    {"job.max_time",
     {"2 h",
      [](auto& s) { return s.job.max_time_s == 7200; },
      {"", "soon", "1 d"},
      {"-1", "9000 h"}}},
    {"model.weights",
     {"w x.h5", [](auto& s) { return s.model.weights == "w x.h5"; }, {""}, {too_long_path}}},
    {"data.tokens",
     {"t.h5", [](auto& s) { return s.data.tokens == "t.h5"; }, {""}, {too_long_path}}},
    {"data.window",
     {"512", [](auto& s) { return s.data.window == 512; }, no_whole, {"-1", "2147483648"}}},
    {"data.stride",
     {"256", [](auto& s) { return s.data.stride == 256; }, no_whole, {"-1", "2147483648"}}},
    {"data.max_documents",
     {"5000000000",
      [](auto& s) { return s.data.max_documents == 5000000000; },
      no_whole,
      {"-1", "9223372036854775808", "-9223372036854775809"}}},
    {"data.any_tokenizer", {"true", [](auto& s) { return s.data.any_tokenizer; }, no_boolean, {}}},
    {"device.kind",
     {"host", [](auto& s) { return s.device.kind == "host"; }, {"", "gpu", "Host", "auto,"}, {}}},
    {"device.threads",
     {"4", [](auto& s) { return s.device.threads == 4; }, no_whole, {"-1", "4097"}}},
    {"device.products",
     {"onednn",
      [](auto& s) { return s.device.products == "onednn"; },
      {"", "mkl", "OpenBLAS"},
      {}}},
    {"mesh.shard",
     {"2",
      [](auto& s) { return s.mesh.shard == 2; },
      no_whole,
      {"-1", "2147483648", "4294967297"}}},
    {"fsdp.forward_prefetch",
     {"64",
      [](auto& s) { return s.fsdp.forward_prefetch == 64; },
      no_whole,
      {"-1", "65", "99999999999999999999"}}},
    {"fsdp.param_dtype",
     {"bf16", [](auto& s) { return s.fsdp.param_dtype == "bf16"; }, {"", "fp16", "BF16"}, {}}},
    {"fsdp.piece_bytes",
     {"4 MiB",
      [](auto& s) { return s.fsdp.piece_bytes == base::Bytes{4 << 20}; },
      {"", "4 MB", "4 mib", "1.5 GiB", "4 M", "MiB", "4 MiB MiB", "0x10", "4 B", "4 TiB", "nan"},
      {"-1", "-1 KiB", "9223372036854775807 KiB", "9007199254740992 KiB", "9223372036854775808"}}},
    {"fsdp.gather_memory",
     {"2 GiB",
      [](auto& s) { return s.fsdp.gather_memory == base::Bytes{std::int64_t{2} << 30}; },
      {"", "4 MB", "1.5 GiB", "nan"},
      {"-1", "9223372036854775808"}}},
    {"fsdp.offload",
     {"params",
      [](auto& s) { return s.fsdp.offload == "params"; },
      {"", "optimizer", "true", "Params"},
      {}}},
    {"device.tf32", {"true", [](auto& s) { return s.device.tf32; }, no_boolean, {}}},
    {"output.environment",
     {"strict",
      [](auto& s) { return s.output.environment == "strict"; },
      {"", "refuse", "Warn"},
      {}}},
    {"comm.transport",
     {"mpi", [](auto& s) { return s.comm.transport == "mpi"; }, {"", "MPI", "tcp"}, {}}},
    {"comm.timeout",
     {"1.5 min",
      [](auto& s) { return s.comm.timeout_s == 90; },
      {"", "nan", "inf", "-inf", "5 ms", "5 minutes", "0x5", "5 S", "h", "+5", "1 h 5 min", "-0",
       ".5"},
      {"0", "0 s", "-1", "1e-400", "1e-310", "1e400", "1e300 h", "0.0009", "8761 h"}}},
    {"comm.link_rate",
     {"100 Mb/s",
      [](auto& s) { return s.comm.link_rate_bytes_per_s == 12.5e6; },
      {"", "100", "1e9", "100 MiB/s", "100 MB", "100 mb/s", "nan MB/s", "inf GB/s", "-0"},
      {"-1 MB/s", "1e-400 MB/s", "1e-310 GB/s", "0.0001 MB/s", "1e5 GB/s", "1e400 GB/s"}}},
    {"batch.tokens",
     {"1", [](auto& s) { return s.batch.tokens == 1; }, no_whole, {"0", "-1", "2147483648"}}},
    {"score.temperature",
     {"0.7",
      [](auto& s) { return s.score.temperature == 0.7; },
      {"", "1 s", "nan", "inf", "one", "-0", "0x1", "+1", ".5"},
      {"0", "-1", "1e-7", "1e7", "1e400"}}},
    {"score.entropy", {"true", [](auto& s) { return s.score.entropy; }, no_boolean, {}}},
    {"score.top_k",
     {"5", [](auto& s) { return s.score.top_k == 5; }, no_whole, {"-1", "2147483648"}}},
    {"score.hidden_states",
     {"true", [](auto& s) { return s.score.hidden_states; }, no_boolean, {}}},
    {"score.logits", {"true", [](auto& s) { return s.score.logits; }, no_boolean, {}}},
    {"model.config",
     {"c x.json", [](auto& s) { return s.model.config == "c x.json"; }, {}, {too_long_path}}},
    {"model.init_seed",
     {"9223372036854775807",
      [](auto& s) { return s.model.init_seed == 9223372036854775807; },
      no_whole,
      {"-1", "9223372036854775808"}}},
    {"fsdp.backward_prefetch",
     {"64", [](auto& s) { return s.fsdp.backward_prefetch == 64; }, no_whole, {"-1", "65"}}},
    {"fsdp.reshard_after_forward",
     {"false", [](auto& s) { return !s.fsdp.reshard_after_forward; }, no_boolean, {}}},
    {"fsdp.reduce_dtype",
     {"bf16",
      [](auto& s) { return s.fsdp.reduce_dtype == "bf16"; },
      {"", "auto", "fp16", "BF16"},
      {}}},
    {"train.steps",
     {"900000000",
      [](auto& s) { return s.train.steps == 900000000; },
      no_whole,
      {"0", "-1", "9223372036854775808"}}},
    {"train.learning_rate",
     {"3e-4",
      [](auto& s) { return s.train.learning_rate == 3e-4; },
      no_number,
      {"0", "-1", "1e-13", "1001", "1e-400", "1e400"}}},
    {"train.schedule",
     {"linear",
      [](auto& s) { return s.train.schedule == "linear"; },
      {"", "step", "Cosine", "cosine linear"},
      {}}},
    {"train.warmup_steps",
     {"10",
      [](auto& s) { return s.train.warmup_steps == 10; },
      no_whole,
      {"-1", "9223372036854775808"}}},
    {"train.min_learning_rate",
     {"1e-5",
      [](auto& s) { return s.train.min_learning_rate == 1e-5; },
      no_number,
      {"-1", "1001"}}},
    {"train.beta1",
     {"0.5", [](auto& s) { return s.train.beta1 == 0.5; }, no_number, {"-0.1", "1", "1e400"}}},
    {"train.beta2",
     {"0.999", [](auto& s) { return s.train.beta2 == 0.999; }, no_number, {"-0.1", "1"}}},
    {"train.epsilon",
     {"1e-6",
      [](auto& s) { return s.train.epsilon == 1e-6; },
      no_number,
      {"0", "-1", "2", "1e-31"}}},
    {"train.weight_decay",
     {"0.01", [](auto& s) { return s.train.weight_decay == 0.01; }, no_number, {"-1", "101"}}},
    {"train.decay",
     {"all", [](auto& s) { return s.train.decay == "all"; }, {"", "none", "Matrices"}, {}}},
    {"train.gradient_clip_norm",
     {"0.5", [](auto& s) { return s.train.gradient_clip_norm == 0.5; }, no_number, {"-1", "1e10"}}},
    {"train.accumulate",
     {"4", [](auto& s) { return s.train.accumulate == 4; }, no_whole, {"0", "-1", "2147483648"}}},
    {"train.batch_documents",
     {"32",
      [](auto& s) { return s.train.batch_documents == 32; },
      no_whole,
      {"-1", "9223372036854775808"}}},
    {"train.recompute",
     {"none", [](auto& s) { return s.train.recompute == "none"; }, {"", "true", "Layer"}, {}}},
    {"train.seed",
     {"7", [](auto& s) { return s.train.seed == 7; }, no_whole, {"-1", "9223372036854775808"}}},
    {"train.shuffle", {"false", [](auto& s) { return !s.train.shuffle; }, no_boolean, {}}},
    {"train.max_bad_steps",
     {"1",
      [](auto& s) { return s.train.max_bad_steps == 1; },
      no_whole,
      {"0", "-1", "2147483648"}}},
    {"train.evaluate",
     {"e.h5", [](auto& s) { return s.train.evaluate == "e.h5"; }, {}, {too_long_path}}},
    {"train.evaluate_every",
     {"100",
      [](auto& s) { return s.train.evaluate_every == 100; },
      no_whole,
      {"-1", "9223372036854775808"}}},
    {"checkpoint.directory",
     {"ck", [](auto& s) { return s.checkpoint.directory == "ck"; }, {}, {too_long_path}}},
    {"checkpoint.every",
     {"50",
      [](auto& s) { return s.checkpoint.every == 50; },
      no_whole,
      {"-1", "9223372036854775808"}}},
    {"checkpoint.keep",
     {"3", [](auto& s) { return s.checkpoint.keep == 3; }, no_whole, {"-1", "2147483648"}}},
    {"checkpoint.resume",
     {"ck/step-00000010.h5",
      [](auto& s) { return s.checkpoint.resume == "ck/step-00000010.h5"; },
      {""},
      {too_long_path}}},
    {"checkpoint.load_optimizer",
     {"false", [](auto& s) { return !s.checkpoint.load_optimizer; }, no_boolean, {}}},
    {"output.file",
     {"r.h5", [](auto& s) { return s.output.file == "r.h5"; }, {""}, {too_long_path}}},
    {"output.existing",
     {"replace",
      [](auto& s) { return s.output.existing == "replace"; },
      {"", "append", "REPLACE"},
      {}}},
    {"output.flush_every",
     {"5 s",
      [](auto& s) { return s.output.flush_every_s == 5; },
      {"", "nan", "5 ms"},
      {"0", "-1", "0.0009", "8761 h"}}},
    {"output.timeline", {"false", [](auto& s) { return !s.output.timeline; }, no_boolean, {}}},
    {"output.timeline_passes",
     {"3",
      [](auto& s) { return s.output.timeline_passes == 3; },
      no_whole,
      {"1", "0", "-2", "2147483648"}}},
    {"output.require",
     {"observed",
      [](auto& s) { return s.output.require == "observed"; },
      {"", "true", "observe"},
      {}}},
    {"output.log",
     {"p.jsonl", [](auto& s) { return s.output.log == "p.jsonl"; }, {}, {too_long_path}}},
};
const Probes probes = with(with(bench_probes(), plan_probes()), other_probes);

class DeckValues : public testing::TestWithParam<std::string> {};

TEST_P(DeckValues, HasAProbe) { EXPECT_EQ(probes.count(GetParam()), 1u); }

TEST_P(DeckValues, ReachesItsMemberFromDeckAndCommandLine) {
    const std::string& key = GetParam();
    const Probe& probe = probes.at(key);
    EXPECT_TRUE(probe.arrived(parsed(good_deck, {"--" + key + "=" + probe.good}).sections()));
    // good_deck without the line that it has for this key, if it has one
    std::string rest = good_deck;
    const Setting present = setting_of(parsed(good_deck), key);
    if (present.origin == "deck") {
        const std::string name = key.substr(key.find('.') + 1);
        const std::string line = "\n" + name + " = " + present.value + "\n";
        rest.replace(rest.find(line), line.size(), "\n");
    }
    const Deck deck = parsed(rest + section_and_line(key, probe.good));
    EXPECT_TRUE(probe.arrived(deck.sections()));
    EXPECT_EQ(setting_of(deck, key).value, probe.good);
}

TEST_P(DeckValues, RefusesOtherTypesAndUnits) {
    const std::string& key = GetParam();
    for (const std::string& value : probes.at(key).bad_type) {
        const std::string said = refusal(good_deck, {"--" + key + "=" + value});
        EXPECT_EQ(said.rfind("command line: " + key + " ", 0), 0u) << value << ": " << said;
        EXPECT_EQ(said.find("out of range"), std::string::npos) << value << ": " << said;
        EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    }
}

TEST_P(DeckValues, RefusesWhatIsOutOfRange) {
    const std::string& key = GetParam();
    for (const std::string& value : probes.at(key).out_of_range) {
        const std::string said = refusal(good_deck, {"--" + key + "=" + value});
        EXPECT_EQ(said.rfind("command line: " + key + " is out of range: it takes ", 0), 0u)
            << value << ": " << said;
        EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    }
}

std::vector<std::string> keys() {
    std::vector<std::string> names;
    for (const KeyInfo& info : known_keys()) {
        names.push_back(info.key);
    }
    return names;
}

INSTANTIATE_TEST_SUITE_P(EveryKey, DeckValues, testing::ValuesIn(keys()), [](const auto& key) {
    std::string name = key.param;
    name[name.find('.')] = '_';
    return name;
});

TEST(DeckValueForms, HaveAProbeForKeysOfTheTableOnly) {
    EXPECT_EQ(probes.size(), known_keys().size());
}

TEST(DeckValueForms, TakesUnitsWithAndWithoutABlank) {
    const auto timeout = [](const std::string& value) {
        return parsed(good_deck, {"--comm.timeout=" + value}).sections().comm.timeout_s;
    };
    EXPECT_EQ(timeout("2.5"), 2.5);
    EXPECT_EQ(timeout("2s"), 2);
    EXPECT_EQ(timeout("2\tmin"), 120);
    EXPECT_EQ(timeout("0.5 h"), 1800);
    EXPECT_EQ(timeout("1e2 s"), 100);
    EXPECT_EQ(timeout("0.1"), 0.1); // exact through the store
    const auto rate = [](const std::string& value) {
        return parsed(good_deck, {"--comm.link_rate=" + value})
            .sections()
            .comm.link_rate_bytes_per_s;
    };
    EXPECT_EQ(rate("3 MB/s"), 3e6);
    EXPECT_EQ(rate("3GB/s"), 3e9);
    EXPECT_EQ(rate("8 Gb/s"), 1e9);
    EXPECT_EQ(rate("8 Mb/s"), 1e6);
    EXPECT_EQ(rate("0"), 0);
    EXPECT_EQ(rate("0 GB/s"), 0);
    const auto size = [](const std::string& value) {
        return parsed(good_deck, {"--fsdp.piece_bytes=" + value}).sections().fsdp.piece_bytes.count;
    };
    EXPECT_EQ(size("4096"), 4096);
    EXPECT_EQ(size("3KiB"), 3072);
    EXPECT_EQ(size("2 GiB"), 2147483648);
    EXPECT_EQ(size("9007199254740991 KiB"), 9223372036854774784);
}

TEST(DeckValueForms, TakesTheLastValueOfEachRange) {
    EXPECT_EQ(parsed(good_deck, {"--data.max_documents=9223372036854775807"})
                  .sections()
                  .data.max_documents,
              9223372036854775807);
    EXPECT_EQ(parsed(good_deck, {"--mesh.shard=2147483647"}).sections().mesh.shard, 2147483647);
    EXPECT_EQ(refusal(good_deck, {"--job.title=" + std::string(1024, 't')}), "");
    EXPECT_EQ(refusal(good_deck, {"--comm.timeout=0.001"}), "");
    EXPECT_EQ(refusal(good_deck, {"--comm.timeout=8760 h"}), "");
}

TEST(DeckValueForms, SaysWhatABooleanAChoiceAndANumberTake) {
    EXPECT_EQ(refusal(good_deck, {"--job.strict=yes"}),
              "command line: job.strict takes true or false, not \"yes\"");
    EXPECT_EQ(refusal(good_deck, {"--device.kind=Hots"}),
              "command line: device.kind takes auto, host or cuda, not \"Hots\" (did you mean "
              "host?)");
    EXPECT_EQ(refusal(good_deck, {"--fsdp.forward_prefetch=8 parsecs"}),
              "command line: fsdp.forward_prefetch takes auto or a whole number, 0 to 64, not \"8 "
              "parsecs\"");
    EXPECT_EQ(refusal(good_deck, {"--job.name=benches"}),
              "command line: job.name takes score, train, bench or plan, not \"benches\"");
}

TEST(DeckValueForms, TakesAWordOrAPathWhereACheckpointIsNamed) {
    for (const char* value : {"auto", "none", "ck/step-00000010.h5"}) {
        EXPECT_EQ(parsed(good_deck, {"--checkpoint.resume=" + std::string(value)})
                      .sections()
                      .checkpoint.resume,
                  value);
    }
    EXPECT_EQ(known_key("checkpoint.resume").type, "auto, none or a path of at most 4095 bytes");
}

TEST(DeckValueForms, TakesEmptyTextOnlyWhereItMeansSomething) {
    EXPECT_EQ(refusal(good_deck + "[job]\ntitle =\n[output]\nlog =\n"), "");
    EXPECT_EQ(refusal(good_deck + "[comm]\ntransport =\n"),
              "score.deck:12: comm.transport needs a value: it takes auto, mpi, shared or nccl");
    EXPECT_EQ(refusal(good_deck, {"--output.file= "}), "command line: output.file needs a value");
}

} // namespace
} // namespace foregather::deck::test
