// SPDX-License-Identifier: Apache-2.0
// The accounting at the end of a run: the table on stdout, and the same figures as tables for the
// results file. One set of numbers feeds both.
#pragma once

#include <string>
#include <vector>

#include <foregather/device/device.hpp>
#include <foregather/io/results_file.hpp>
#include <foregather/io/table.hpp>
#include <foregather/mesh/topology.hpp>
#include <foregather/schedule/source.hpp>

#include "figures.hpp"
#include "inputs.hpp"
#include "memory_plan.hpp"
#include "report_parts.hpp"

namespace foregather::job {

// Of the packs that this start computes.
struct Computed {
    std::int64_t packs = 0;
    double tokens = 0, rows = 0; // of the layers, of the head
    double attended = 0;         // length x (length + 1) of each window
};
Computed computed(const PackPlan& packs, const std::vector<std::int64_t>& to_do,
                  const deck::ScoreSection& score);

struct RunFacts { // known on rank 0 when the run is over
    const deck::Deck& deck;
    const Inputs& inputs;
    const mesh::Topology& topology;
    Transport transport;
    std::string transport_seen; // what the gathers ran on, as it names itself
    std::string backend_kind, backend_why, product, product_why;
    ParamType param;                             // asked for
    base::DType weights_seen = base::DType::f32; // what the arena and the slots hold
    MemoryPlan memory;
    Depth depth;               // in force
    float logits_scale = 1.0F; // that the head multiplied by
    std::vector<RankFigures> ranks;
    RunPrefetch prefetch;
    io::Summary summary;
    std::int64_t passes = 0;
    double first_compute_s = 0; // from the start of the process to the first pack's compute
    Computed computed;
    std::int64_t packs_before = 0; // that an earlier start had stored
    device::Facts device;          // of rank 0
    bool offload = false;
    std::vector<std::string> overrides; // of keys, by variables
};

PrefetchTold prefetch_told(const RunFacts& facts);

double run_seconds(const RunFacts& facts);       // the longest of any rank
double tokens_per_second(const RunFacts& facts); // computed / run_seconds
double flop_of_run(const RunFacts& facts);
double flop_per_second(const RunFacts& facts);

std::string report(const RunFacts& facts, const std::vector<std::string>& notes);
// What could be changed, from what was measured: one sentence each.
std::vector<std::string> advice(const RunFacts& facts);

std::vector<io::Table> timing_tables(const RunFacts& facts);

} // namespace foregather::job
