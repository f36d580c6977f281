// SPDX-License-Identifier: Apache-2.0
// Rates out of a deck, times out of rates.
#include "plan_times.hpp"

#include <algorithm>
#include <array>

#include <foregather/base/error.hpp>

#include "plan_inputs.hpp"

namespace foregather::job {
namespace {

using Reals = std::vector<double>;
using deck::MachineSection;
using deck::Sourced;

double real(std::int64_t n) { return static_cast<double>(n); }

struct Quantity {
    const char* key;
    const Sourced MachineSection::*member;
};

constexpr std::array<Quantity, 16> quantities{
    {{"machine.ranks_per_node", &MachineSection::ranks_per_node},
     {"machine.bf16_flops", &MachineSection::bf16_flops},
     {"machine.fp32_flops", &MachineSection::fp32_flops},
     {"machine.product_share", &MachineSection::product_share},
     {"machine.attention_share", &MachineSection::attention_share},
     {"machine.memory_bandwidth", &MachineSection::memory_bandwidth},
     {"machine.memory_share", &MachineSection::memory_share},
     {"machine.node_bandwidth", &MachineSection::node_bandwidth},
     {"machine.node_share", &MachineSection::node_share},
     {"machine.node_latency", &MachineSection::node_latency},
     {"machine.network_bandwidth", &MachineSection::network_bandwidth},
     {"machine.network_share", &MachineSection::network_share},
     {"machine.network_latency", &MachineSection::network_latency},
     {"machine.step_gap", &MachineSection::step_gap},
     {"machine.compute_slowdown", &MachineSection::compute_slowdown},
     {"machine.collective_slowdown", &MachineSection::collective_slowdown}}};

const Quantity& quantity(const std::string& key) {
    return *std::find_if(quantities.begin(), quantities.end(),
                         [&](const Quantity& q) { return key == q.key; });
}

void refuse_what_is_missing(const deck::Deck& deck, const std::vector<std::string>& keys) {
    std::string missing;
    for (const std::string& key : keys) {
        if (!(deck.sections().machine.*quantity(key).member).given()) {
            missing += (missing.empty() ? "" : ", ") + key;
        }
    }
    if (!missing.empty()) {
        base::refuse(deck.where("plan.machine") + " = " + deck.sections().plan.machine +
                     " does not say all that this plan needs: " + missing);
    }
}

// AdamW reads weight, gradient and both moments and writes all but the gradient, in fp32; the norm
// has read the gradient before. With bf16 the arena is written as well.
double update_bytes(base::DType weights) {
    return 7 * 4 + 4 + (weights == base::DType::f32 ? 0 : 2);
}

// Of the gradients of each unit in a step, the share that is added to one before.
Reals added_shares(const model::Chain& chain, std::int64_t passes) {
    Reals gradients(chain.units.size());
    for (const model::ChainUse& use : chain.uses) {
        gradients[static_cast<std::size_t>(use.unit)] += real(passes);
    }
    for (double& of : gradients) {
        of = of > 1 ? (of - 1) / of : 0;
    }
    return gradients;
}

} // namespace

std::vector<std::string> machine_keys(base::DType weights, bool over_nodes) {
    std::vector<std::string> keys;
    for (const Quantity& q : quantities) {
        const std::string key = q.key;
        const bool other_type =
            key == (weights == base::DType::f32 ? "machine.bf16_flops" : "machine.fp32_flops");
        if (!other_type && (over_nodes || key.find("network") == std::string::npos)) {
            keys.push_back(key);
        }
    }
    return keys;
}

Machine machine_of(const deck::Deck& deck, base::DType weights, bool over_nodes) {
    refuse_what_is_missing(deck, machine_keys(weights, over_nodes));
    const MachineSection& m = deck.sections().machine;
    const double peak = weights == base::DType::f32 ? m.fp32_flops.value : m.bf16_flops.value;
    Machine machine;
    machine.product = peak * m.product_share.value;
    machine.attention = peak * m.attention_share.value;
    machine.memory_bandwidth = m.memory_bandwidth.value * m.memory_share.value;
    machine.links = {static_cast<int>(m.ranks_per_node.value),
                     m.node_bandwidth.value * m.node_share.value, m.node_latency.value,
                     m.network_bandwidth.value * m.network_share.value, m.network_latency.value};
    machine.step_gap = m.step_gap.value;
    machine.contention = {m.compute_slowdown.value, m.collective_slowdown.value};
    return machine;
}

std::string basis_of(const deck::Deck& deck, const std::string& key) {
    return (deck.sections().machine.*quantity(key).member).basis;
}

const std::string& worse(const std::string& a, const std::string& b) {
    static const std::array<std::string, 5> order = {"", "measured", "published", "fitted",
                                                     "assumed"};
    return std::find(order.begin(), order.end(), a) < std::find(order.begin(), order.end(), b) ? b
                                                                                               : a;
}

double seconds_of(const UseWork& work, const Machine& machine) {
    const double memory = machine.memory_bandwidth;
    return std::max(work.product_flop / machine.product, work.product_bytes / memory) +
           std::max(work.attention_flop / machine.attention, work.attention_bytes / memory) +
           work.other_bytes / memory;
}

schedule::PassTimes times_on(const Machine& machine, const PlannedModel& model,
                             const shard::ArenaPlan& arena, const Setting& setting,
                             base::DType reduce, std::int64_t passes) {
    const Load& load = setting.load;
    const int per_node = machine.links.ranks_per_node;
    const Group shard = shard_group(setting.ranks, setting.shard, per_node);
    const Group replicas = replica_group(setting.ranks, setting.shard, per_node);
    schedule::PassTimes times;
    for (const UseWork& work : work_of_pass(model.config, model.chain, load, model.trains)) {
        times.compute.push_back(seconds_of(work, machine));
    }
    const Reals added = added_shares(model.chain, passes);
    for (std::size_t u = 0; u < arena.units.size(); ++u) {
        const shard::ArenaPlan::Place& place = arena.units[u];
        const base::Elements padded = place.layout.padded();
        times.gather.push_back(
            all_gather_seconds(base::bytes_of(padded, load.weights), shard, machine.links));
        if (!model.trains) {
            continue;
        }
        // Received, it is added to what is there; a type other than fp32 is rounded to before.
        const base::Elements part = place.layout.per_rank();
        const double rounding = reduce == base::DType::f32 ? 0 : 4 + 2;
        const double touched = setting.shard == 1 ? real(part) * (4 + 8) * added[u]
                                                  : real(part) * (real(base::size_of(reduce)) + 8) +
                                                        real(padded) * rounding;
        times.reduce.push_back(
            all_gather_seconds(base::bytes_of(padded, reduce), shard, machine.links) +
            touched / machine.memory_bandwidth);
        times.replica.push_back(
            all_reduce_seconds(base::bytes_of(part, base::DType::f32), replicas, machine.links));
        times.optimizer.push_back(real(part) * update_bytes(load.weights) /
                                  machine.memory_bandwidth);
    }
    times.between = model.trains ? machine.step_gap : 0;
    return times;
}

} // namespace foregather::job
