// SPDX-License-Identifier: Apache-2.0
// Spans of all ranks as one table of /timing, on rank 0's clock. What a span is, and which are
// kept, is decided by the schedule room.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <foregather/io/table.hpp>
#include <foregather/model/chain.hpp>
#include <foregather/schedule/span.hpp>

namespace foregather::job {

// A rank's spans as bytes. Clocks drift: the offset to rank 0's is taken on the line between two
// measurements. step_of: the optimizer step of a pass, from 1; empty: there are none, and the
// column holds the pass.
struct ClockOffsets {
    std::int64_t at_start_ns = 0, at_end_ns = 0; // to be added to this rank's time
    std::int64_t start_ns = 0, end_ns = 0;       // when they were measured
};
using StepOfPass = std::function<std::int64_t(std::int64_t pass)>;
std::string pack_spans(const std::vector<schedule::Span>& spans, const ClockOffsets& clock,
                       const StepOfPass& step_of = {});

// `packed`: each rank's pack_spans(), by rank; those of several sources may follow each other.
io::Table span_table(const std::vector<std::string>& packed, const model::Chain& chain);

} // namespace foregather::job
