// SPDX-License-Identifier: Apache-2.0
// Sizes, tables and names that scoring and training have in common.
#include "activations.hpp"

#include <algorithm>

namespace foregather::model {

Sizes::Sizes(const ModelConfig& c, base::Elements most, base::Elements positions,
             base::Elements row_multiple)
    : rows((most + row_multiple - 1) / row_multiple * row_multiple), stream(rows * c.width),
      query(rows * c.heads * c.head_dim), key(rows * c.kv_heads * c.head_dim), ffn(rows * c.ffn),
      taken(most * c.width), table(positions * (c.head_dim / 2)), tokens(most) {}

void upload_rope_tables(const ModelConfig& config, base::Elements positions, device::Device& device,
                        const device::Buffer<float>& cosines, const device::Buffer<float>& sines) {
    const RopeTables tables = rope_tables(config.rope, config.head_dim, positions);
    const auto stream = device.stream("RoPE tables", device::Priority::high);
    const device::HostBuffer<float> staging(device, cosines.size() + sines.size(), "RoPE tables");
    const auto upload = [&](const std::vector<float>& from, base::Elements at,
                            const device::Buffer<float>& to) {
        const auto host = staging.view().subspan(static_cast<std::size_t>(at), from.size());
        std::copy(from.begin(), from.end(), host.begin());
        device.copy_in(base::View<const float>(host), to.view(), *stream);
    };
    upload(tables.cosines, 0, cosines);
    upload(tables.sines, cosines.size(), sines);
    stream->sync(); // before the staging goes
}

const shard::TensorPart* part_named(const shard::UnitSpec& unit, const std::string& tensor) {
    for (const shard::TensorPart& part : unit.parts) {
        if (part.tensor == tensor) {
            return &part;
        }
    }
    return nullptr;
}

base::ConstSlab find(const shard::UnitSpec& unit, base::ConstSlab weights,
                     const std::string& tensor) {
    const shard::TensorPart* part = part_named(unit, tensor);
    return part != nullptr ? shard::part_of(weights, *part) : base::ConstSlab{};
}

} // namespace foregather::model
