// SPDX-License-Identifier: Apache-2.0
// Rows come in as stored, and are converted on their way into the arena where its type differs.
#include <foregather/shard/load.hpp>

#include <algorithm>
#include <cstring>

#include <foregather/io/convert.hpp>

namespace foregather::shard {

Loader::Loader(io::WeightsFile& file, base::Bytes staging_bytes)
    : file_(file), staging_bytes_(staging_bytes) {}

void Loader::load(const UnitSpec& unit, const ShardLayout& layout, int rank,
                  const base::Slab& destination) {
    if (destination.n != layout.per_rank()) {
        base::fail("unit " + unit.name + ": a part of " + std::to_string(layout.per_rank()) +
                   " elements does not fit " + std::to_string(destination.n));
    }
    if (destination.type != base::DType::f32 && destination.type != base::DType::bf16) {
        base::fail("unit " + unit.name + ": weights are held as fp32 or bf16, not " +
                   base::name_of(destination.type));
    }
    std::memset(destination.data, 0, static_cast<std::size_t>(destination.bytes().count));
    for (const Slice& slice : slices_of(unit, layout, rank)) {
        load_slice(slice, destination.part(slice.into, slice.elements));
    }
}

void Loader::load_slice(const Slice& slice, const base::Slab& destination) {
    const io::StoredTensor* stored = file_.find(slice.part->tensor);
    if (stored == nullptr) {
        base::fail("tensor " + slice.part->tensor + " is not in " + file_.path());
    }
    const base::Elements row = slice.part->row_elements();
    const std::int64_t row_bytes = row * base::size_of(stored->type);
    const std::int64_t most = std::max<std::int64_t>(1, staging_bytes_.count / row_bytes);
    base::Elements skip = slice.skip;
    std::int64_t first = slice.first_row;
    for (base::Elements written = 0; written < slice.elements;) {
        // The first and the last row may belong to others in part, those between do not.
        const base::Elements left = slice.elements - written;
        const bool whole = skip == 0 && left >= row;
        const std::int64_t rows = whole ? std::min(most, left / row) : 1;
        const base::Elements n = std::min(rows * row - skip, left);
        const base::Slab to = destination.part(written, n);
        if (whole && stored->type == destination.type) {
            file_.read_rows(stored->name, first, rows, to.data);
        } else {
            staging_.resize(static_cast<std::size_t>(std::min(most, slice.rows) * row_bytes));
            file_.read_rows(stored->name, first, rows, staging_.data());
            convert(*stored, skip, to);
        }
        written += n;
        first += rows;
        skip = 0;
    }
}

// `to.n` elements of the staging, after `skip` of them.
void Loader::convert(const io::StoredTensor& stored, base::Elements skip, const base::Slab& to) {
    const std::byte* raw = staging_.data() + skip * base::size_of(stored.type);
    if (stored.type == to.type) {
        std::memcpy(to.data, raw, static_cast<std::size_t>(to.bytes().count));
    } else if (to.type == base::DType::f32) {
        io::to_f32(stored.type, raw, to.n, to.f32());
    } else {
        widened_.resize(static_cast<std::size_t>(to.n));
        io::to_f32(stored.type, raw, to.n, widened_.data());
        io::f32_to_bf16(widened_.data(), to.n, to.bf16());
    }
}

} // namespace foregather::shard
