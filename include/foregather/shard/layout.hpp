// SPDX-License-Identifier: Apache-2.0
// Pure arithmetic of who owns which elements of a unit, and where each unit lies in the arenas.
// It knows no memory and no ranks but numbers.
#pragma once

#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/shard/unit.hpp>

namespace foregather::shard {

// A unit of `whole` elements over `ranks` ranks: padded to ranks x alignment, rank r owns the r-th
// of equal contiguous parts. Padding ends the unit and may cover whole ranks when the unit is
// small; owned() clips it, so no caller tests for it.
class ShardLayout {
public:
    ShardLayout(base::Elements whole, int ranks);

    base::Elements padded() const { return per_rank_ * ranks_; }
    base::Elements per_rank() const { return per_rank_; }
    base::Range owned(int rank) const; // without padding; may be empty

private:
    base::Elements whole_;
    int ranks_;
    base::Elements per_rank_;
};

// A stretch of a tensor that a rank owns: rows of the file to read, and which of their elements go
// where in the rank's part of the unit.
struct Slice {
    const TensorPart* part = nullptr; // points into the unit's spec
    std::int64_t first_row = 0;       // of the tensor in the file
    std::int64_t rows = 0;
    base::Elements skip = 0; // elements of the first row that come before the stretch
    base::Elements elements = 0;
    base::Elements into = 0; // offset in the rank's part
};
std::vector<Slice> slices_of(const UnitSpec& unit, const ShardLayout& layout, int rank);

// Where every unit lies, for one rank count. Parts begin at multiples of a number of elements in
// the shard arena, the same on every rank; slots have a size that is one.
struct ArenaPlan {
    struct Place {
        ShardLayout layout;
        base::Elements in_shard_arena; // offset in a rank's own arena
        base::Elements in_whole_arena; // offset where all ranks' parts of a unit lie together
    };
    std::vector<Place> units;
    base::Elements shard_elements = 0; // of a rank's own arena
    base::Elements whole_elements = 0; // of all units
    base::Elements largest_unit = 0;   // padded: the size of a slot
    base::Elements largest_part = 0;   // of a rank: the size of a stage

    // multiple: a multiple of `alignment`.
    ArenaPlan(const std::vector<UnitSpec>& units, int ranks, base::Elements multiple = alignment);
};

} // namespace foregather::shard
