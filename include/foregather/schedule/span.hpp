// SPDX-License-Identifier: Apache-2.0
// Spans of the timeline as rows, kept for the first and the last passes of a run.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/schedule/schedule.hpp>

namespace foregather::schedule {

enum class SpanKind { gather, compute, wait, copy, reduce };

struct Span {
    SpanKind kind = SpanKind::compute;
    std::int64_t pass = 0;
    std::int64_t sequence = 0; // order of enqueuing on this rank: of a source, of a reducer
    int slot = -1;
    base::UnitId unit = 0;
    std::int64_t issued_ns = 0, begin_ns = 0, end_ns = 0;
    base::Bytes received;                     // from other ranks; by a copy, from host memory
    Direction direction = Direction::forward; // of the use that it serves; of a copy, of its gather
};

// Keeps the spans of the first `passes` / 2 (rounded up) passes and of the last `passes` / 2.
class SpanStore {
public:
    explicit SpanStore(std::int64_t passes) : first_((passes + 1) / 2), last_(passes / 2) {}

    void add(const Span& span); // passes in ascending order
    std::vector<Span> all() const;

private:
    std::int64_t first_;
    std::int64_t last_;
    std::vector<Span> early_;
    std::deque<Span> late_;
};

} // namespace foregather::schedule
