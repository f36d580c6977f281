// SPDX-License-Identifier: Apache-2.0
// Cutting a model into units and writing down one forward pass over them. The cut follows from the
// config and the deck alone.
#include <foregather/model/chain.hpp>

#include <algorithm>

#include <foregather/base/error.hpp>

#include "names.hpp"

namespace foregather::model {
namespace {

constexpr base::Bytes smallest_default_piece{4 << 20};

base::Bytes fp32_bytes(base::Elements n) { return base::bytes_of(n, base::DType::f32); }

std::vector<shard::UnitSpec> layer_units(const ModelConfig& config) {
    std::vector<shard::UnitSpec> units;
    for (int layer = 0; layer < config.layers; ++layer) {
        shard::UnitSpec unit;
        unit.name = "layer." + std::to_string(layer);
        for (const base::TensorSpec& tensor : layer_tensors(config, layer)) {
            unit.append(tensor.name, tensor.shape, 0, tensor.shape.front());
        }
        units.push_back(std::move(unit));
    }
    return units;
}

// Rows of a piece: as many as fit, then evened out over the number of pieces that this takes.
std::int64_t rows_per_piece(const ModelConfig& config, base::Bytes piece_bytes) {
    const std::int64_t fit =
        std::max<std::int64_t>(1, piece_bytes.count / fp32_bytes(config.width).count);
    const std::int64_t pieces = (config.vocabulary + fit - 1) / fit;
    return (config.vocabulary + pieces - 1) / pieces;
}

std::vector<shard::UnitSpec> pieces_of(const std::string& role, const std::string& tensor,
                                       const ModelConfig& config, std::int64_t rows) {
    std::vector<shard::UnitSpec> pieces;
    for (std::int64_t first = 0; first < config.vocabulary; first += rows) {
        shard::UnitSpec piece;
        piece.name = role + "." + std::to_string(pieces.size());
        piece.append(tensor, {config.vocabulary, config.width}, first,
                     std::min(rows, config.vocabulary - first));
        pieces.push_back(std::move(piece));
    }
    return pieces;
}

} // namespace

std::vector<base::UnitId> Chain::unit_order() const {
    std::vector<base::UnitId> order;
    for (const ChainUse& use : uses) {
        order.push_back(use.unit);
    }
    return order;
}

Chain make_chain(const ModelConfig& config, base::Bytes piece_bytes) {
    if (config.layers < 1 || config.width < 1 || config.vocabulary < 1 || piece_bytes.count < 0) {
        base::fail("a chain of " + std::to_string(config.layers) + " layers of width " +
                   std::to_string(config.width) + ", vocabulary " +
                   std::to_string(config.vocabulary) + ", pieces of " +
                   std::to_string(piece_bytes.count) + " bytes cannot be made");
    }
    const std::vector<shard::UnitSpec> layers = layer_units(config);
    base::Bytes limit = piece_bytes;
    if (limit.count == 0) {
        limit = smallest_default_piece;
        for (const shard::UnitSpec& layer : layers) {
            limit = std::max(limit, fp32_bytes(layer.elements));
        }
    }
    const std::int64_t rows = rows_per_piece(config, limit);
    Chain chain;
    const auto add = [&](const std::vector<shard::UnitSpec>& units, Role role) {
        for (int i = 0; i < static_cast<int>(units.size()); ++i) {
            chain.uses.push_back({static_cast<base::UnitId>(chain.units.size()), role, i});
            chain.units.push_back(units[static_cast<std::size_t>(i)]);
        }
    };
    add(pieces_of("embedding", embedding_name, config, rows), Role::embedding);
    const int pieces = static_cast<int>(chain.units.size());
    add(layers, Role::layer);
    if (!config.tied) {
        add(pieces_of("head", head_name, config, rows), Role::head);
        return chain;
    }
    for (int i = pieces - 1; i >= 0; --i) {
        chain.uses.push_back({i, Role::head, i}); // unit i is embedding piece i
    }
    return chain;
}

} // namespace foregather::model
