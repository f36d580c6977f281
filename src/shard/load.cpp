// SPDX-License-Identifier: Apache-2.0
// Rows come in as stored and are converted on their way into the arena.
#include <foregather/shard/load.hpp>

#include <algorithm>

#include <foregather/io/convert.hpp>

namespace foregather::shard {

Loader::Loader(io::WeightsFile& file, base::Bytes staging_bytes)
    : file_(file), staging_bytes_(staging_bytes) {}

void Loader::load(const UnitSpec& unit, const ShardLayout& layout, int rank,
                  base::View<float> destination) {
    if (static_cast<base::Elements>(destination.size()) != layout.per_rank()) {
        base::fail("unit " + unit.name + ": a part of " + std::to_string(layout.per_rank()) +
                   " elements does not fit " + std::to_string(destination.size()));
    }
    std::fill(destination.begin(), destination.end(), 0.0F); // gaps and padding
    for (const Slice& slice : slices_of(unit, layout, rank)) {
        load_slice(slice, destination.subspan(static_cast<std::size_t>(slice.into),
                                              static_cast<std::size_t>(slice.elements)));
    }
}

void Loader::load_slice(const Slice& slice, base::View<float> destination) {
    const io::StoredTensor* stored = file_.find(slice.part->tensor);
    if (stored == nullptr) {
        base::fail("tensor " + slice.part->tensor + " is not in " + file_.path());
    }
    const base::Elements row = slice.part->row_elements();
    const std::int64_t row_bytes = row * base::size_of(stored->type);
    const std::int64_t most = std::max<std::int64_t>(1, staging_bytes_.count / row_bytes);
    staging_.resize(static_cast<std::size_t>(std::min(most, slice.rows) * row_bytes));
    base::Elements skip = slice.skip;
    base::Elements written = 0;
    for (std::int64_t done = 0; done < slice.rows; done += most) {
        const std::int64_t rows = std::min(most, slice.rows - done);
        file_.read_rows(stored->name, slice.first_row + done, rows, staging_.data());
        const base::Elements n = std::min(rows * row - skip, slice.elements - written);
        io::to_f32(stored->type, staging_.data() + skip * base::size_of(stored->type), n,
                   destination.data() + written);
        written += n;
        skip = 0;
    }
}

} // namespace foregather::shard
