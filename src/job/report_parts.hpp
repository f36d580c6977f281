// SPDX-License-Identifier: Apache-2.0
// What the reports of all jobs are made of: lines of text and tables from the same figures. Which
// of them a job tells, and in what order, is decided by report.cpp and train_report.cpp.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <foregather/device/device.hpp>
#include <foregather/io/table.hpp>
#include <foregather/mesh/topology.hpp>
#include <foregather/model/config.hpp>

#include "figures.hpp"
#include "memory_plan.hpp"

namespace foregather::job {

// As printf, with the end of the line.
std::string text_line(const char* format, ...) __attribute__((format(printf, 1, 2)));
// "3 ranks", "1 rank".
std::string counted(std::int64_t n, const std::string& one, const std::string& many);

// "2 threads per rank", or of a device that is not the host its name and address.
std::string in_words(const device::Facts& facts);
// comm.link_rate if gathers between ranks ran under it, else 0.
double emulated_rate(const deck::Deck& deck, const Transport& transport);

// What ran where.
struct HeadFacts {
    const std::string job; // "score"
    const deck::Deck& deck;
    const mesh::Topology& topology;
    const Transport& transport;
    const std::string &backend_kind, &backend_why, &product;
    const device::Facts& device;
};
std::string head_lines(const HeadFacts& facts);

std::string phase_lines(const std::vector<NamedPhase>& phases,
                        const std::vector<RankFigures>& ranks);

// One direction of the prefetch.
struct PrefetchTold {
    const char* direction; // "forward"
    const char* key;       // what it was asked for by
    const RunPrefetch& run;
    int asked = 0; // deck::automatic for `auto`
    const Depth& depth;
    int slots = 0;
    base::Bytes slot_bytes;
    std::string inert; // why nothing was gathered, where the verdict is `inert`
    int requested() const { return asked == deck::automatic ? depth.units : asked; }
};
// `label`: the first word of the first line.
std::string prefetch_lines(const std::string& label, const PrefetchTold& told);

// Largest of any rank, sums over ranks.
std::string memory_lines(const MemoryPlan& plan, const std::vector<RankFigures>& ranks);

// Of forward passes: products of the layers, attention below the diagonal, head for scored rows, 2
// per multiply-add. attended: length x (length + 1), summed over what is attended to.
double forward_flop(const model::ModelConfig& config, double tokens, double attended, double rows);

using Attributes =
    std::vector<std::pair<std::string, std::variant<double, std::int64_t, std::string>>>;
io::Table units_table(const model::Chain& chain, int ranks, base::DType gathered);
io::Table prefetch_table(const std::vector<PrefetchTold>& directions);
io::Table phases_table(const std::vector<NamedPhase>& phases, const std::vector<RankFigures>& ranks,
                       Attributes attributes);
// With what reductions moved, if `training`.
io::Table ranks_table(const std::vector<RankFigures>& ranks, bool training);

} // namespace foregather::job
