// SPDX-License-Identifier: Apache-2.0
// First and last passes; names.
#include <foregather/schedule/span.hpp>

namespace foregather::schedule {

std::string name_of(SpanKind kind, const std::string& unit) {
    switch (kind) {
    case SpanKind::gather:
        return "gather of " + unit;
    case SpanKind::reduce:
        return "reduction of " + unit;
    case SpanKind::copy:
        return "copy of " + unit;
    case SpanKind::wait:
        return "wait for " + unit;
    case SpanKind::compute:
        break;
    }
    return unit;
}

std::string describe(const Underway& work, const std::vector<shard::UnitSpec>& units) {
    const std::string& unit = units[static_cast<std::size_t>(work.unit)].name;
    return std::string(work.begun ? "" : "before the ") +
           (work.kind == SpanKind::compute ? "compute of " + unit : name_of(work.kind, unit)) +
           (work.direction == Direction::forward ? ", forward" : ", backward") + ", pass " +
           std::to_string(work.pass);
}

RangeNames::RangeNames(device::Device& device, SpanKind kind,
                       const std::vector<shard::UnitSpec>& units) {
    for (const shard::UnitSpec& unit : units) {
        names_.push_back(device.range_name(name_of(kind, unit.name)));
    }
}

void SpanStore::add(const Span& span) {
    if (span.pass < first_) {
        early_.push_back(span);
        return;
    }
    if (last_ == 0) {
        return;
    }
    late_.push_back(span);
    while (late_.front().pass <= span.pass - last_) {
        late_.pop_front();
    }
}

std::vector<Span> SpanStore::all() const {
    std::vector<Span> spans = early_;
    spans.insert(spans.end(), late_.begin(), late_.end());
    return spans;
}

} // namespace foregather::schedule
