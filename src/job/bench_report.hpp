// SPDX-License-Identifier: Apache-2.0
// What a bench tells a person: for each configuration its depths, then what the prefetch was worth
// and what of it was lost, then what to change. The figures are those of the results file.
#pragma once

#include <string>
#include <vector>

#include "bench_results.hpp"
#include "report_parts.hpp"

namespace foregather::job {

std::string bench_report(const HeadFacts& head, const BenchResults& results,
                         const MemoryPlan& memory, const std::vector<RankFigures>& ranks,
                         const std::vector<std::string>& notes);

// One line, when a round is over: "mpi, 512 tokens: round 3 of 7".
std::string round_line(const Transport& transport, std::int64_t tokens, std::int64_t round,
                       std::int64_t rounds);

} // namespace foregather::job
