// SPDX-License-Identifier: Apache-2.0
// What a probe of a key's values is, values that no number or truth is, and the probes of bench.
// The other keys' probes are in values_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "good_deck.hpp"

namespace foregather::deck::test {

struct Probe {
    std::string good;                             // not the default
    std::function<bool(const Sections&)> arrived; // did `good` reach the member
    std::vector<std::string> bad_type;
    std::vector<std::string> out_of_range;
};

using Wholes = std::vector<std::int64_t>;

inline const std::vector<std::string> no_whole = {"",      "1.5",       "1e3",   "0x10", "+1",
                                                  "--1",   "8 parsecs", "1 KiB", "one",  "nan",
                                                  "1,000", "1_0",       "1 2",   "-0"};
inline const std::vector<std::string> no_boolean = {"", "True", "1", "0", "yes", "on", "truee"};
inline const std::vector<std::string> no_number = {"",    "1 s", "nan", "inf", "one", "-0",
                                                   "0x1", "+1",  ".5",  "1,5", "1 %"};
inline const std::string too_long_path(4096, 'p');

using Probes = std::map<std::string, Probe>;

inline Probes with(Probes some, const Probes& more) {
    some.insert(more.begin(), more.end());
    return some;
}

inline Probes bench_probes() {
    return {
        {"bench.job",
         {"train", [](auto& s) { return s.bench.job == "train"; }, {"", "bench", "Train"}, {}}},
        {"bench.depths",
         {"0, 2",
          [](auto& s) {
              return s.bench.depths == Wholes{0, 2};
          },
          {"0 1", "one"},
          {"65"}}},
        {"bench.transports",
         {"shared, mpi",
          [](auto& s) {
              return s.bench.transports == std::vector<std::string>{"shared", "mpi"};
          },
          {"auto", "tcp"},
          {}}},
        {"bench.tokens",
         {"16777216",
          [](auto& s) { return s.bench.tokens == Wholes{16777216}; },
          {"two"},
          {"1", "16777217"}}},
        {"bench.steps",
         {"100000", [](auto& s) { return s.bench.steps == 100000; }, no_whole, {"0", "100001"}}},
        {"bench.warmup",
         {"1000", [](auto& s) { return s.bench.warmup == 1000; }, no_whole, {"0", "1001"}}},
        {"bench.pairs",
         {"10000", [](auto& s) { return s.bench.pairs == 10000; }, no_whole, {"0", "10001"}}},
        {"bench.seed",
         {"9223372036854775807",
          [](auto& s) { return s.bench.seed == 9223372036854775807; },
          no_whole,
          {"-1", "9223372036854775808"}}},
    };
}

} // namespace foregather::deck::test
