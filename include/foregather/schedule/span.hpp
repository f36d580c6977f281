// SPDX-License-Identifier: Apache-2.0
// Spans of the timeline as rows, kept for the first and the last passes of a run.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/device/device.hpp>
#include <foregather/schedule/schedule.hpp>
#include <foregather/shard/unit.hpp>

namespace foregather::schedule {

enum class SpanKind { gather, compute, wait, copy, reduce };

// What a span is called in errors and by a profiler: a compute by its unit, "layer.3", others by
// what they do to it, "gather of layer.3".
std::string name_of(SpanKind kind, const std::string& unit);

// The names of a kind's spans, by unit, as ranges of a device; made once.
class RangeNames {
public:
    RangeNames() = default; // of no unit
    RangeNames(device::Device& device, SpanKind kind, const std::vector<shard::UnitSpec>& units);
    // nullptr for a unit that has no name here.
    device::Device::RangeName of(base::UnitId unit) const {
        const auto u = static_cast<std::size_t>(unit);
        return u < names_.size() ? names_[u] : nullptr;
    }

private:
    std::vector<device::Device::RangeName> names_;
};

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

// The earliest work that is enqueued and not done: its name, and whether it has begun.
struct Underway {
    SpanKind kind = SpanKind::compute;
    base::UnitId unit = 0;
    std::int64_t pass = 0;
    Direction direction = Direction::forward;
    bool begun = false;
};
// "gather of layer.3, backward, pass 2", or "before the gather of ..." where it has not begun.
std::string describe(const Underway& work, const std::vector<shard::UnitSpec>& units);

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
