// SPDX-License-Identifier: Apache-2.0
// Rows come in as stored, and are converted on their way into the arena where its type differs.
#include <foregather/shard/load.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <foregather/io/convert.hpp>

namespace foregather::shard {

Upload::Upload(device::Device& device, base::Bytes staging_bytes)
    : device_(device), stream_(device.stream("load", device::Priority::high)) {
    for (Staging& staging : staging_) {
        const std::int64_t least = base::size_of(base::DType::f32);
        staging.memory = {device, std::max(staging_bytes.count, least), "load staging"};
        staging.sent = device.event();
    }
}

Upload::~Upload() {
    try {
        stream_->sync();
    } catch (
        const std::exception&) { // sync() has thrown it already, or another error is on its way
    }
}

void Upload::begin(const base::Slab& part) {
    part_ = part;
    sent_ = filled_ = 0;
}

base::Elements Upload::most() const {
    return staging_[0].memory.size() / base::size_of(part_.type);
}

base::Slab Upload::next(base::Elements n) {
    if (filled_ + n > most()) {
        send();
    }
    const Staging& staging = staging_[turn_];
    if (filled_ == 0) {
        staging.sent->wait_host(); // what was in it before
    }
    filled_ += n;
    return base::Slab(staging.memory.view().data(), filled_, part_.type).part(filled_ - n, n);
}

void Upload::send() {
    if (filled_ == 0) {
        return;
    }
    const base::Slab to = part_.part(sent_, filled_);
    const auto bytes = static_cast<std::size_t>(to.bytes().count);
    device_.copy_in(base::View<const std::byte>(staging_[turn_].memory.view().first(bytes)),
                    base::View<std::byte>(to.data, bytes), *stream_);
    staging_[turn_].sent->record(*stream_);
    sent_ += filled_;
    filled_ = 0;
    turn_ = 1 - turn_;
}

void fill_part(const UnitSpec& unit, const ShardLayout& layout, int rank, Destination& destination,
               const std::function<void(const Slice&)>& fill) {
    if (destination.size() != layout.per_rank()) {
        base::fail("unit " + unit.name + ": a part of " + std::to_string(layout.per_rank()) +
                   " elements does not fit " + std::to_string(destination.size()));
    }
    if (destination.type() != base::DType::f32 && destination.type() != base::DType::bf16) {
        base::fail("unit " + unit.name + ": weights are held as fp32 or bf16, not " +
                   base::name_of(destination.type()));
    }
    base::Elements written = 0; // what no slice covers is padding
    const auto pad_up_to = [&](base::Elements end) {
        while (written < end) {
            const base::Slab gap = destination.next(std::min(end - written, destination.most()));
            std::memset(gap.data, 0, static_cast<std::size_t>(gap.bytes().count));
            written += gap.n;
        }
    };
    for (const Slice& slice : slices_of(unit, layout, rank)) {
        pad_up_to(slice.into);
        fill(slice);
        written = slice.into + slice.elements;
    }
    pad_up_to(destination.size());
    destination.end();
}

Loader::Loader(io::WeightsFile& file, base::Bytes staging_bytes)
    : file_(file), staging_bytes_(staging_bytes) {}

void Loader::load(const UnitSpec& unit, const ShardLayout& layout, int rank,
                  Destination& destination) {
    fill_part(unit, layout, rank, destination,
              [&](const Slice& slice) { load_slice(slice, destination); });
}

void Loader::load_slice(const Slice& slice, Destination& to) {
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
        std::int64_t rows = whole ? std::min(most, left / row) : 1;
        if (whole && stored->type == to.type() && row <= to.most()) {
            rows = std::min(rows, to.most() / row);
            const base::Slab held = to.next(rows * row);
            file_.read_rows(stored->name, first, rows, held.data);
            inspect(*stored, first * row, held);
            written += rows * row;
        } else {
            staging_.resize(static_cast<std::size_t>(std::min(most, slice.rows) * row_bytes));
            file_.read_rows(stored->name, first, rows, staging_.data());
            for (const base::Elements end = written + std::min(rows * row - skip, left);
                 written < end;) {
                const base::Slab piece = to.next(std::min(end - written, to.most()));
                convert(*stored, skip, piece);
                inspect(*stored, first * row + skip, piece);
                skip += piece.n;
                written += piece.n;
            }
        }
        first += rows;
        skip = 0;
    }
}

void Loader::inspect(const io::StoredTensor& stored, base::Elements first, const base::Slab& held) {
    const io::NotFinite found = io::find_not_finite(held.type, held.data, held.n);
    if (found.count > 0 && faults_.count == 0) {
        float value = 0;
        io::to_f32(held.type, held.data + found.first * base::size_of(held.type), 1, &value);
        std::string index;
        base::Elements at = first + found.first;
        for (std::size_t d = stored.shape.size(); d-- > 0; at /= stored.shape[d]) {
            index = std::to_string(at % stored.shape[d]) + (index.empty() ? "" : ", ") + index;
        }
        faults_.first = stored.name + "[" + index + "] is " +
                        (std::isnan(value) ? "nan"
                         : value < 0       ? "-inf"
                                           : "inf");
    }
    faults_.count += found.count;
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
