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

    // Fills `destination` [layout.per_rank()] fp32 with this rank's part; padding becomes zero.
    // Blocks. Throws Error(failed) with file, dataset and rows.
    void load(const UnitSpec& unit, const ShardLayout& layout, int rank,
              base::View<float> destination);

private:
    void load_slice(const Slice& slice, base::View<float> destination);

    io::WeightsFile& file_;
    base::Bytes staging_bytes_;
    std::vector<std::byte> staging_;
};

} // namespace foregather::shard
