// SPDX-License-Identifier: Apache-2.0
// A bench as tables of the results file, complete enough to replay it: `plan` reads them. Names and
// units are fixed here; what the figures are is defined in bench_figures.hpp.
//
//   /bench/model_config     the model's config.json
//   /bench/units            name, bytes (whole, as gathered, with padding), tensors
//   /bench/uses             of one pass, in order: unit, unit_number, direction (forward |
//                           backward), needs_weights
//   /bench/configurations   one row for each transport and number of tokens: transport, moves,
//                           tokens, documents, longest, attended, slowest_rank, reference_depth,
//                           contention_compute, contention_collective, overlap_s, between_s.
//                           Attributes of the run: job (score | train), device (host | cuda),
//                           ranks, shard_ranks, replicas, passes_per_step, param_dtype,
//                           reduce_dtype, reshard_after_forward, recompute, link_rate_bytes_per_s
//                           (0: no emulation), steps, warmup, pairs, seed
//   /bench/depths           one row for each configuration and depth: all figures
//   /bench/turns            one row for each turn and rank, in the order in which they were run
//   /bench/alone            what parts of a pass take by themselves: configuration, kind (compute |
//                           gather | reduce | replica | optimizer), use (of compute; else -1),
//                           unit, unit_number, seconds (of each the longest of any rank: what
//                           `plan` replays), seconds_slowest (of the slowest rank: what limit_s,
//                           predicted_s, bound_s and the recommendation replay)
//   /bench/comparison       forward, backward and step before and after, and what follows from
//                           them: configuration, quantity, before_depth, after_depth, before, after
//   /bench/recommendation   one row for each configuration, with the options to run with
#pragma once

#include <foregather/io/table.hpp>

#include "bench_figures.hpp"

namespace foregather::job {

// The table of the public case, of any configuration: quantities in words, in the order in which
// they are told. before: depth 0, or the least measured; after: the recommended depth if it was
// measured, else 1, else the deepest.
struct ComparisonRow {
    std::string quantity;
    std::string unit; // "s", or "" of a share
    double before = 0, after = 0;
    bool only_after = false; // there is nothing before
    bool known = true;       // false: nothing can be said, `after` is 0
};
struct ComparisonTable {
    std::int64_t before_depth = 0, after_depth = 0;
    std::vector<ComparisonRow> rows; // empty where there are not two depths
};
ComparisonTable comparison_of(const ConfigurationFigures& c, const Recommendation& r, bool trains);

struct BenchResults { // known on rank 0
    const BenchFacts& facts;
    const BenchInputs& inputs;
    const mesh::Topology& topology;
    std::vector<ConfigurationFigures> configurations;
    std::vector<Recommendation> recommendations; // of each
    std::vector<std::vector<Turn>> turns;        // by rank, of all configurations
    double link_rate = 0;                        // bytes/s; 0: not emulated
    std::string device_kind;                     // "host" or "cuda": what computed
};

// Known at the start: units, uses, the config.
std::vector<io::Table> bench_start_tables(const BenchFacts& facts);
io::Text bench_config_text(const BenchInputs& inputs);
// At the end: the rest.
std::vector<io::Table> bench_tables(const BenchResults& results);

} // namespace foregather::job
