// SPDX-License-Identifier: Apache-2.0
// Reading a rank's part of a unit from the weights file: only the rows that touch it, piece by
// piece.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <foregather/base/view.hpp>
#include <foregather/io/weights_file.hpp>
#include <foregather/shard/layout.hpp>

namespace foregather::shard {

class Loader {
public:
    // staging_bytes: the only memory a load needs; at least one row of any tensor is held.
    Loader(io::WeightsFile& file, base::Bytes staging_bytes);

    // Fills `destination` [layout.per_rank()] of fp32 or bf16 with this rank's part; padding
    // becomes zero. What is stored as another type is converted, to bf16 by rounding to nearest
    // even; what is stored as this one is read where it shall lie. Blocks. Throws Error(failed)
    // with file, dataset and rows.
    void load(const UnitSpec& unit, const ShardLayout& layout, int rank,
              const base::Slab& destination);

private:
    void load_slice(const Slice& slice, const base::Slab& destination);
    void convert(const io::StoredTensor& stored, base::Elements skip, const base::Slab& to);

    io::WeightsFile& file_;
    base::Bytes staging_bytes_;
    std::vector<std::byte> staging_;
    std::vector<float> widened_; // between two 16-bit types
};

} // namespace foregather::shard
