// SPDX-License-Identifier: Apache-2.0
// What a key takes and refuses, as values_test.cpp tries it; that of the keys of plan and machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "value_probes.hpp"

namespace foregather::deck::test {

// Of machine.NAME; `number` of it is `si`. bad: a number with a unit that it does not take; beyond:
// numbers that are out of range.
inline std::pair<const std::string, Probe>
sourced_probe(const std::string& name, Sourced MachineSection::*member, const std::string& number,
              double si, const std::string& bad, const std::vector<std::string>& beyond) {
    const std::string source = "a data sheet, page 3: table";
    const auto arrived = [=](const Sections& s) {
        return s.machine.*member == Sourced{si, "published", source};
    };
    std::vector<std::string> range;
    for (const std::string& text : beyond) {
        range.push_back(text + ", assumed: too much");
    }
    return {"machine." + name,
            {number + ", published: " + source,
             arrived,
             {number, number + ",", number + ", published",
              number + ", published:", number + ", guessed: by me", number + ", : by me",
              bad + ", assumed: x", "nan", "-0, assumed: x", "assumed: x"},
             range}};
}

inline Probes plan_probes() {
    using M = MachineSection;
    const std::vector<std::string> no_list = {"1,", "one", "1.5", "1;2", "2, 2"};
    const auto path = [](std::string PlanSection::*member, bool required) {
        return Probe{"p x",
                     [=](const Sections& s) { return s.plan.*member == "p x"; },
                     required ? std::vector<std::string>{""} : std::vector<std::string>{},
                     {too_long_path}};
    };
    const auto list = [&](std::vector<std::int64_t> PlanSection::*member,
                          const std::vector<std::string>& range) {
        return Probe{"3, 17",
                     [=](const Sections& s) {
                         return s.plan.*member == std::vector<std::int64_t>{3, 17};
                     },
                     no_list, range};
    };
    return {
        {"plan.job",
         {"score", [](auto& s) { return s.plan.job == "score"; }, {"", "bench", "Train"}, {}}},
        {"plan.model", path(&PlanSection::model, true)},
        {"plan.machine", path(&PlanSection::machine, false)},
        {"plan.measured", path(&PlanSection::measured, false)},
        {"plan.ranks", list(&PlanSection::ranks, {"0", "1048577", "-1"})},
        {"plan.shards", list(&PlanSection::shards, {"1048577", "-1"})},
        {"plan.depths", list(&PlanSection::depths, {"65", "-1"})},
        {"plan.tokens", list(&PlanSection::tokens, {"0", "16777217"})},
        {"plan.document",
         {"9", [](auto& s) { return s.plan.document == 9; }, no_whole, {"-1", "16777217"}}},
        {"plan.published", {"true", [](auto& s) { return s.plan.published; }, no_boolean, {}}},
        {"machine.name",
         {"a b", [](auto& s) { return s.machine.name == "a b"; }, {}, {std::string(201, 'n')}}},
        {"machine.kind",
         {"host", [](auto& s) { return s.machine.kind == "host"; }, {"", "auto", "gpu"}, {}}},
        sourced_probe("ranks_per_node", &M::ranks_per_node, "2", 2, "2 s", {"0", "4097"}),
        sourced_probe("memory", &M::memory, "2 GiB", 2147483648, "2 GB/s", {"0.1 MB", "2e9 GB"}),
        sourced_probe("bf16_flops", &M::bf16_flops, "2 Tflop/s", 2e12, "2 T", {"1e9 Tflop/s"}),
        sourced_probe("fp32_flops", &M::fp32_flops, "2 Gflop/s", 2e9, "2 flops", {"0 Gflop/s"}),
        sourced_probe("product_share", &M::product_share, "0.5", 0.5, "50 %", {"0", "1.1"}),
        sourced_probe("attention_share", &M::attention_share, "1", 1, "1 s", {"0", "2"}),
        sourced_probe("memory_bandwidth", &M::memory_bandwidth, "2 TB/s", 2e12, "2", {"1e9 TB/s"}),
        sourced_probe("memory_share", &M::memory_share, "0.25", 0.25, "1/4", {"0", "1.01"}),
        sourced_probe("node_bandwidth", &M::node_bandwidth, "2 GB/s", 2e9, "2 GB", {"0 GB/s"}),
        sourced_probe("node_share", &M::node_share, "0.75", 0.75, "75%", {"-1", "3"}),
        sourced_probe("node_latency", &M::node_latency, "2 us", 2e-6, "2 ns", {"2 s", "-1 us"}),
        sourced_probe("network_bandwidth", &M::network_bandwidth, "8 Gb/s", 1e9, "8 G", {"0 Gb/s"}),
        sourced_probe("network_share", &M::network_share, "0.5", 0.5, "0.5 GB/s", {"0", "1.5"}),
        sourced_probe("network_latency", &M::network_latency, "0 s", 0, "0 h", {"1.5 s"}),
        sourced_probe("step_gap", &M::step_gap, "2 ms", 2e-3, "2 min", {"1001 s"}),
        sourced_probe("compute_slowdown", &M::compute_slowdown, "0", 0, "0 x", {"101", "-1"}),
        sourced_probe("collective_slowdown", &M::collective_slowdown, "0.5", 0.5, "half", {"1e9"}),
    };
}

} // namespace foregather::deck::test
