// SPDX-License-Identifier: Apache-2.0
// Which elements of a rank's part the optimizer treats how: parameters, each once over the ranks,
// and whether they decay. Pure arithmetic of the layout.
#pragma once

#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/shard/layout.hpp>

namespace foregather::job {

// Which tensors weight decay is for: those of two dimensions or more, or all.
enum class Decay { matrices, all };

struct ShardRange {
    base::Range elements; // of the rank's part of the unit
    bool decays = false;

    friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

// The parameters in a rank's part of a unit, ascending; a tensor's dimensions decide, never the
// part's shape. Neighbours that are treated alike are one range. Padding, between tensors and at
// the end, is in none. Over the ranks of a shard group and all units each parameter of the model is
// in one range, also that of a tied head, whose only unit is the embedding's. So the square of the
// global gradient norm is the sum over ranges, units and the ranks of one shard group.
std::vector<ShardRange> shard_ranges(const shard::UnitSpec& unit, const shard::ShardLayout& layout,
                                     int rank, Decay decay);

} // namespace foregather::job
