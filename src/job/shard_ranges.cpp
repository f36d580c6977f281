// SPDX-License-Identifier: Apache-2.0
// Slices of tensors, joined where they touch.
#include "shard_ranges.hpp"

namespace foregather::job {

std::vector<ShardRange> shard_ranges(const shard::UnitSpec& unit, const shard::ShardLayout& layout,
                                     int rank, Decay decay) {
    std::vector<ShardRange> ranges;
    for (const shard::Slice& slice : shard::slices_of(unit, layout, rank)) {
        const ShardRange next{{slice.into, slice.into + slice.elements},
                              decay == Decay::all || slice.part->shape.size() >= 2};
        if (!ranges.empty() && ranges.back().elements.end == next.elements.begin &&
            ranges.back().decays == next.decays) {
            ranges.back().elements.end = next.elements.end;
        } else {
            ranges.push_back(next);
        }
    }
    return ranges;
}

} // namespace foregather::job
