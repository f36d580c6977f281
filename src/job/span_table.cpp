// SPDX-License-Identifier: Apache-2.0
// Packing, aligning, spreading into columns.
#include "span_table.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace foregather::job {
namespace {

constexpr std::array<const char*, 5> kinds = {"gather", "compute", "wait", "copy", "reduce"};

struct PackedSpan {
    std::int64_t kind, direction, step, pass, sequence, slot, unit, issued, begin, end, bytes;
};

} // namespace

std::string pack_spans(const std::vector<schedule::Span>& spans, const ClockOffsets& clock,
                       const StepOfPass& step_of) {
    const double slope = clock.end_ns > clock.start_ns
                             ? static_cast<double>(clock.at_end_ns - clock.at_start_ns) /
                                   static_cast<double>(clock.end_ns - clock.start_ns)
                             : 0;
    const auto aligned = [&](std::int64_t ns) {
        return ns + clock.at_start_ns +
               static_cast<std::int64_t>(slope * static_cast<double>(ns - clock.start_ns));
    };
    std::string bytes;
    for (const schedule::Span& s : spans) {
        const PackedSpan packed{static_cast<std::int64_t>(s.kind),
                                static_cast<std::int64_t>(s.direction),
                                step_of ? step_of(s.pass) : s.pass,
                                s.pass,
                                s.sequence,
                                s.slot,
                                s.unit,
                                aligned(s.issued_ns),
                                aligned(s.begin_ns),
                                aligned(s.end_ns),
                                s.received.count};
        bytes.append(reinterpret_cast<const char*>(&packed), sizeof(packed));
    }
    return bytes;
}

io::Table span_table(const std::vector<std::string>& packed, const model::Chain& chain) {
    std::vector<std::int64_t> rank, step, pass, sequence, slot, issued, begin, end, bytes;
    std::vector<std::string> direction, stream, kind, unit;
    for (std::size_t r = 0; r < packed.size(); ++r) {
        for (std::size_t at = 0; at < packed[r].size(); at += sizeof(PackedSpan)) {
            PackedSpan s{};
            std::memcpy(&s, packed[r].data() + at, sizeof(s));
            rank.push_back(static_cast<std::int64_t>(r));
            step.push_back(s.step);
            pass.push_back(s.pass);
            direction.emplace_back(s.direction == 0 ? "forward" : "backward");
            sequence.push_back(s.sequence);
            slot.push_back(s.slot);
            kind.emplace_back(kinds[static_cast<std::size_t>(s.kind)]);
            stream.emplace_back(kind.back() == "wait" ? "compute" : kind.back());
            unit.push_back(chain.units[static_cast<std::size_t>(s.unit)].name);
            issued.push_back(s.issued);
            begin.push_back(s.begin);
            end.push_back(s.end);
            bytes.push_back(s.bytes);
        }
    }
    const std::int64_t zero = begin.empty()
                                  ? 0
                                  : std::min(*std::min_element(issued.begin(), issued.end()),
                                             *std::min_element(begin.begin(), begin.end()));
    for (auto* column : {&issued, &begin, &end}) {
        for (std::int64_t& ns : *column) {
            ns -= zero;
        }
    }
    return {
        "/timing/spans",
        {{"rank", "1", "rank", rank},
         {"step", "1", "optimizer step, from 1; in score the pass", step},
         {"pass", "1", "pass over one pack per rank", pass},
         {"direction", "", "of the use: order of uses in a pass", direction},
         {"sequence", "1",
          "order of enqueuing on the rank: of gathers, copies and computes together; of "
          "reductions",
          sequence},
         {"slot", "1",
          "buffer of the gathered unit, -1: read in place; of a copy, the stage; of a "
          "reduction, the gradient slot",
          slot},
         {"stream", "", "stream", stream},
         {"kind", "",
          "gather, compute, copy (from host memory, ahead of a gather), reduce, or wait: compute "
          "idle while its gather ran or waited, or for a gradient slot",
          kind},
         {"unit", "", "unit", unit},
         {"issued_ns", "ns", "when it was enqueued, on rank 0's clock, from the first span kept",
          issued},
         {"begin_ns", "ns", "when it began on its stream", begin},
         {"end_ns", "ns", "when it ended", end},
         {"bytes", "byte", "received from other ranks; by a copy, from host memory", bytes}},
        {},
        "span"};
}

} // namespace foregather::job
