// SPDX-License-Identifier: Apache-2.0
// What scoring and training share of their memory: how large arrays are, tables of RoPE on the
// device, tensors of a unit by name. Which arrays there are is decided by each.
#pragma once

#include <string>

#include <foregather/device/device.hpp>
#include <foregather/kernels/kernels.hpp>
#include <foregather/model/config.hpp>
#include <foregather/shard/unit.hpp>

namespace foregather::model {

// Elements of arrays for packs of up to so many tokens.
struct Sizes {
    base::Elements rows;   // T, rounded up to what products touch
    base::Elements stream; // [rows, C]
    base::Elements query;  // [rows, H, D]
    base::Elements key;    // [rows, K, D]
    base::Elements ffn;    // [rows, F]
    base::Elements taken;  // [T, C]
    base::Elements table;  // [positions, D/2]
    base::Elements tokens; // [T]

    // positions: of the RoPE tables.
    Sizes(const ModelConfig& config, base::Elements tokens, base::Elements positions,
          base::Elements row_multiple);
};

// Fills [positions, D/2] each. Blocks.
void upload_rope_tables(const ModelConfig& config, base::Elements positions, device::Device& device,
                        const device::Buffer<float>& cosines, const device::Buffer<float>& sines);

// The part of a unit that is a tensor; null for one that the unit lacks.
const shard::TensorPart* part_named(const shard::UnitSpec& unit, const std::string& tensor);
// A tensor of a unit by name; without one (a bias that the model lacks) an empty slab.
base::ConstSlab find(const shard::UnitSpec& unit, base::ConstSlab weights,
                     const std::string& tensor);

inline base::Elements count(kernels::Ids ids) { return static_cast<base::Elements>(ids.size()); }

} // namespace foregather::model
