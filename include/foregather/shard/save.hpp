// SPDX-License-Identifier: Apache-2.0
// A rank's parts of units on their way into a checkpoint of whole tensors, and the check that
// replicas hold the same. When a checkpoint is written is decided elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/io/checkpoint_file.hpp>
#include <foregather/shard/layout.hpp>

namespace foregather::shard {

// The tensors that units are made of, in order of first use, each once however many units it is cut
// into. Throws Error(failed) when the parts of one do not make it up.
std::vector<base::TensorSpec> tensors_of(const std::vector<UnitSpec>& units);

// Writes what this rank owns of a unit; `part` [layout.per_rank()] in host memory. Padding is not
// saved. Inside CheckpointWriter::fill(); blocks. Throws Error(failed) with file and dataset.
void save(io::CheckpointWriter& file, io::TensorSet set, const UnitSpec& unit,
          const ShardLayout& layout, int rank, base::View<const float> part);
// The same of elements [first, first + values.size()) of the part.
void save_piece(io::CheckpointWriter& file, io::TensorSet set, const UnitSpec& unit,
                const ShardLayout& layout, int rank, base::Elements first,
                base::View<const float> values);

// A checksum of fp32 values in the order in which they are added, of their bits: FNV-1a over words
// of 32 bits, in 64 bits. Every step is a bijection of the state: two sequences of equal length
// that differ in one value never have the same. Sign of zero and payload of NaN count.
class Checksum {
public:
    void add(base::View<const float> values);
    std::int64_t value() const { return static_cast<std::int64_t>(state_); }

private:
    std::uint64_t state_ = 0xcbf29ce484222325;
};

// Checksums of all ranks, by rank, replica after replica of shard_size ranks. "" if those of each
// replica are the first one's; else which ranks differ, in words.
std::string differing_replicas(const std::vector<std::int64_t>& checksums, int shard_size);

} // namespace foregather::shard
