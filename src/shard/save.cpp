// SPDX-License-Identifier: Apache-2.0
// Slices of parts written where they lie in whole tensors. When is decided elsewhere.
#include <foregather/shard/save.hpp>

#include <algorithm>
#include <bit>
#include <map>

#include <foregather/base/error.hpp>

namespace foregather::shard {

std::vector<base::TensorSpec> tensors_of(const std::vector<UnitSpec>& units) {
    std::vector<base::TensorSpec> tensors;
    std::map<std::string, std::int64_t> rows; // in parts so far
    for (const UnitSpec& unit : units) {
        for (const TensorPart& part : unit.parts) {
            if (rows.count(part.tensor) == 0) {
                tensors.push_back({part.tensor, part.shape});
            }
            rows[part.tensor] += part.rows;
        }
    }
    for (const base::TensorSpec& tensor : tensors) {
        const std::int64_t whole = tensor.shape.empty() ? 1 : tensor.shape[0];
        if (rows[tensor.name] != whole) {
            base::fail("tensor " + tensor.name + " has " + std::to_string(whole) +
                       " rows, but units hold " + std::to_string(rows[tensor.name]) + " of it");
        }
    }
    return tensors;
}

void save(io::CheckpointWriter& file, io::TensorSet set, const UnitSpec& unit,
          const ShardLayout& layout, int rank, base::View<const float> part) {
    if (std::ssize(part) != layout.per_rank()) {
        base::fail("unit " + unit.name + ": a part of " + std::to_string(layout.per_rank()) +
                   " elements cannot be saved from " + std::to_string(part.size()));
    }
    save_piece(file, set, unit, layout, rank, 0, part);
}

void save_piece(io::CheckpointWriter& file, io::TensorSet set, const UnitSpec& unit,
                const ShardLayout& layout, int rank, base::Elements first,
                base::View<const float> values) {
    const base::Elements end = first + std::ssize(values);
    if (first < 0 || end > layout.per_rank()) {
        base::fail("unit " + unit.name + ": a part of " + std::to_string(layout.per_rank()) +
                   " elements has no elements " + std::to_string(first) + " to " +
                   std::to_string(end));
    }
    for (const Slice& slice : slices_of(unit, layout, rank)) {
        const base::Elements from = std::max(slice.into, first);
        const base::Elements to = std::min(slice.into + slice.elements, end);
        if (from < to) {
            file.write(set, slice.part->tensor,
                       slice.first_row * slice.part->row_elements() + slice.skip + from -
                           slice.into,
                       values.subspan(static_cast<std::size_t>(from - first),
                                      static_cast<std::size_t>(to - from)));
        }
    }
}

void Checksum::add(base::View<const float> values) {
    std::uint64_t state = state_;
    for (const float value : values) {
        state = (state ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3;
    }
    state_ = state;
}

std::string differing_replicas(const std::vector<std::int64_t>& checksums, int shard_size) {
    std::string differ;
    const auto size = static_cast<std::size_t>(shard_size);
    for (std::size_t rank = size; rank < checksums.size(); ++rank) {
        if (checksums[rank] != checksums[rank % size]) {
            differ += (differ.empty() ? "" : ", ") + std::to_string(rank) + " from rank " +
                      std::to_string(rank % size);
        }
    }
    return differ.empty() ? "" : "replicas hold different weights or moments: rank " + differ;
}

} // namespace foregather::shard
