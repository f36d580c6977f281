// SPDX-License-Identifier: Apache-2.0
// The arithmetic of shards.
#include <foregather/shard/layout.hpp>

#include <algorithm>

#include <foregather/base/error.hpp>

namespace foregather::shard {
namespace {

constexpr base::Elements round_up(base::Elements n, base::Elements to) {
    return (n + to - 1) / to * to;
}

} // namespace

void UnitSpec::append(const std::string& tensor, const base::Shape& shape, std::int64_t first_row,
                      std::int64_t rows) {
    parts.push_back({tensor, shape, first_row, rows, elements});
    elements += round_up(parts.back().elements(), alignment);
}

base::ConstSlab part_of(base::ConstSlab unit, const TensorPart& part) {
    if (part.offset + part.elements() > unit.n) {
        base::fail("tensor " + part.tensor + " ends beyond its unit of " + std::to_string(unit.n) +
                   " elements");
    }
    return {unit.data + part.offset * base::size_of(unit.type), part.elements(), unit.type};
}

ShardLayout::ShardLayout(base::Elements whole, int ranks)
    : whole_(whole), ranks_(ranks), per_rank_(round_up(whole, ranks * alignment) / ranks) {}

base::Range ShardLayout::owned(int rank) const {
    return {std::min(rank * per_rank_, whole_), std::min((rank + 1) * per_rank_, whole_)};
}

std::vector<Slice> slices_of(const UnitSpec& unit, const ShardLayout& layout, int rank) {
    const base::Range owned = layout.owned(rank);
    std::vector<Slice> slices;
    for (const TensorPart& part : unit.parts) {
        const base::Elements begin = std::max(owned.begin, part.offset);
        const base::Elements end = std::min(owned.end, part.offset + part.elements());
        if (begin >= end) {
            continue;
        }
        const base::Elements row = part.row_elements();
        const base::Elements first = begin - part.offset;
        const base::Elements last = end - part.offset;
        Slice slice;
        slice.part = &part;
        slice.first_row = part.first_row + first / row;
        slice.rows = (last + row - 1) / row - first / row;
        slice.skip = first % row;
        slice.elements = last - first;
        slice.into = begin - owned.begin;
        slices.push_back(slice);
    }
    return slices;
}

ArenaPlan::ArenaPlan(const std::vector<UnitSpec>& specs, int ranks, base::Elements multiple) {
    for (const UnitSpec& spec : specs) {
        const ShardLayout layout(spec.elements, ranks);
        units.push_back({layout, shard_elements, ranks * shard_elements});
        shard_elements += round_up(layout.per_rank(), multiple);
        largest_unit = std::max(largest_unit, round_up(layout.padded(), multiple));
        largest_part = std::max(largest_part, round_up(layout.per_rank(), multiple));
    }
    whole_elements = ranks * shard_elements;
}

} // namespace foregather::shard
