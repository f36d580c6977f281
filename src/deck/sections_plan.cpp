// SPDX-License-Identifier: Apache-2.0
// The part of the key table that is the job plan's alone: what is planned, and the machine that it
// is planned for. The other keys of a plan are in sections.cpp and sections_train.cpp.
#include <foregather/deck/sections.hpp>

#include "table.hpp"

namespace foregather::deck {

namespace {

constexpr std::int64_t most_ranks = 1 << 20;
constexpr std::int64_t most_tokens = 1 << 24;

// A share of what the data sheet says.
constexpr Rule share() { return sourced("1", 0.001, 1); }
constexpr Rule flop_rate() { return sourced("flop/s", 1e6, 1e18); }
constexpr Rule bandwidth() { return sourced("bytes/s", 1e3, 1e15); }
constexpr Rule latency() { return sourced("s", 0, 1); }
constexpr Rule slowdown() { return sourced("1", 0, 100); }

constexpr Row plan_rows[] = {
    {"plan.job", [](Sections& s) -> Field { return &s.plan.job; }, one_of("score train"), "",
     "plan", optional, Mark::free, "The job whose passes are planned."},
    {"plan.model", [](Sections& s) -> Field { return &s.plan.model; }, path(), "", "plan", required,
     Mark::free, "The model: a config.json, or a weights file, of which no weights are read."},
    {"plan.machine", [](Sections& s) -> Field { return &s.plan.machine; }, path_or_none(), "",
     "plan", optional, Mark::free,
     "A deck that holds the section machine alone: what the machine can do; a relative path is "
     "seen "
     "from the working directory. Lines of this deck and of the command line win over it. Times "
     "are then computed from the model's shapes."},
    {"plan.measured", [](Sections& s) -> Field { return &s.plan.measured; }, path_or_none(), "",
     "plan", optional, Mark::free,
     "Results of the job bench: times are then those that it measured, brought to other tokens and "
     "ranks. In the place of plan.machine; machine.network_bandwidth and the slowdowns of the "
     "section machine may still be set, and replace what was measured."},
    {"plan.ranks", [](Sections& s) -> Field { return &s.plan.ranks; }, list_of_whole(1, most_ranks),
     "ranks", "plan", required, Mark::free, "Numbers of ranks to plan for."},
    {"plan.shards", [](Sections& s) -> Field { return &s.plan.shards; },
     list_of_whole(0, most_ranks), "ranks", "plan", optional, Mark::free,
     "Ranks that hold one copy of the weights between them, to plan for; 0, or an empty list: all. "
     "Each must divide each number of plan.ranks."},
    {"plan.depths", [](Sections& s) -> Field { return &s.plan.depths; }, list_of_whole(0, 64),
     "units", "plan", optional, Mark::free,
     "Depths of the prefetch to plan for, forward and backward alike."},
    {"plan.tokens", [](Sections& s) -> Field { return &s.plan.tokens; },
     list_of_whole(1, most_tokens), "tokens", "plan", required, Mark::free,
     "Tokens of a rank and pass to plan for."},
    {"plan.document", [](Sections& s) -> Field { return &s.plan.document; }, whole(0, most_tokens),
     "tokens", "plan", optional, Mark::free,
     "Tokens of a document, which is what attention sees as a whole; 0: a pack is one document, as "
     "far as the model has positions."},
    {"plan.published", [](Sections& s) -> Field { return &s.plan.published; }, boolean(), "",
     "plan", optional, Mark::free,
     "Also print figures that others have published beside what is predicted for them; those of "
     "rows above only where they are of the published model and machine."},
};

constexpr Row machine_rows[] = {
    {"machine.name", [](Sections& s) -> Field { return &s.machine.name; }, line_of_text(0, 200), "",
     "plan", optional, Mark::free, "What the machine is called."},
    {"machine.kind", [](Sections& s) -> Field { return &s.machine.kind; }, one_of("cuda host"), "",
     "plan", optional, Mark::free,
     "What computes. It decides how memory is counted, and what fsdp.param_dtype = auto is. With "
     "plan.measured both are as they were measured."},
    {"machine.ranks_per_node", [](Sections& s) -> Field { return &s.machine.ranks_per_node; },
     sourced("1", 1, 4096), "", "plan", optional, Mark::free,
     "Ranks of a node: its GPUs, if each rank has one."},
    {"machine.memory", [](Sections& s) -> Field { return &s.machine.memory; },
     sourced("bytes", 1e6, 1e15), "bytes", "plan", optional, Mark::free,
     "Memory of a rank's device, or with machine.kind = host of a node. Not given: whether a plan "
     "fits is not judged."},
    {"machine.bf16_flops", [](Sections& s) -> Field { return &s.machine.bf16_flops; }, flop_rate(),
     "flop/s", "plan", optional, Mark::free, "Peak of products of bf16, of a rank."},
    {"machine.fp32_flops", [](Sections& s) -> Field { return &s.machine.fp32_flops; }, flop_rate(),
     "flop/s", "plan", optional, Mark::free, "Peak of products of fp32, of a rank."},
    {"machine.product_share", [](Sections& s) -> Field { return &s.machine.product_share; },
     share(), "", "plan", optional, Mark::free, "Share of the peak that products reach."},
    {"machine.attention_share", [](Sections& s) -> Field { return &s.machine.attention_share; },
     share(), "", "plan", optional, Mark::free, "Share of the peak that attention reaches."},
    {"machine.memory_bandwidth", [](Sections& s) -> Field { return &s.machine.memory_bandwidth; },
     bandwidth(), "bytes/s", "plan", optional, Mark::free, "Of a rank's memory."},
    {"machine.memory_share", [](Sections& s) -> Field { return &s.machine.memory_share; }, share(),
     "", "plan", optional, Mark::free, "Share of machine.memory_bandwidth that kernels reach."},
    {"machine.node_bandwidth", [](Sections& s) -> Field { return &s.machine.node_bandwidth; },
     bandwidth(), "bytes/s", "plan", optional, Mark::free,
     "What a rank can receive from the others of its node."},
    {"machine.node_share", [](Sections& s) -> Field { return &s.machine.node_share; }, share(), "",
     "plan", optional, Mark::free,
     "Share of machine.node_bandwidth that an all-gather reaches as its bus bandwidth (as "
     "nccl-tests defines it)."},
    {"machine.node_latency", [](Sections& s) -> Field { return &s.machine.node_latency; },
     latency(), "s", "plan", optional, Mark::free, "Of each step of a ring that stays in a node."},
    {"machine.network_bandwidth", [](Sections& s) -> Field { return &s.machine.network_bandwidth; },
     bandwidth(), "bytes/s", "plan", optional, Mark::free,
     "What a rank can receive from other nodes: that of its network card. With plan.measured: what "
     "collectives get, in the place of what was measured."},
    {"machine.network_share", [](Sections& s) -> Field { return &s.machine.network_share; },
     share(), "", "plan", optional, Mark::free,
     "Share of machine.network_bandwidth that an all-gather reaches."},
    {"machine.network_latency", [](Sections& s) -> Field { return &s.machine.network_latency; },
     latency(), "s", "plan", optional, Mark::free,
     "Of each step of a ring that goes to another node."},
    {"machine.step_gap", [](Sections& s) -> Field { return &s.machine.step_gap; },
     sourced("s", 0, 1000), "s", "plan", optional, Mark::free,
     "Time between a step's last gradient and its optimizer: the norm over all ranks, and the "
     "host."},
    {"machine.compute_slowdown", [](Sections& s) -> Field { return &s.machine.compute_slowdown; },
     slowdown(), "", "plan", optional, Mark::free,
     "How much longer computing takes while a collective runs beside it: 0.3 is 1.3 times."},
    {"machine.collective_slowdown",
     [](Sections& s) -> Field { return &s.machine.collective_slowdown; }, slowdown(), "", "plan",
     optional, Mark::free, "How much longer a collective takes while a rank computes beside it."},
};

} // namespace

std::span<const Row> planning_rows() {
    static const std::vector<Row> rows = [] {
        std::vector<Row> all(std::begin(plan_rows), std::end(plan_rows));
        all.insert(all.end(), std::begin(machine_rows), std::end(machine_rows));
        return all;
    }();
    return rows;
}

} // namespace foregather::deck
