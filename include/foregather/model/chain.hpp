// SPDX-License-Identifier: Apache-2.0
// The model as units and as a chain of uses: embedding pieces, decoder layers, head pieces. It
// decides how the model is cut; who holds which part of a unit, and when it is gathered, is decided
// elsewhere.
#pragma once

#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/model/config.hpp>
#include <foregather/shard/unit.hpp>

namespace foregather::model {

enum class Role { embedding, layer, head };

struct ChainUse {
    base::UnitId unit = 0;
    Role role = Role::layer;
    int index = 0; // of the piece or layer
};

struct Chain {
    std::vector<shard::UnitSpec> units; // embedding pieces, layers, and head pieces if untied
    std::vector<ChainUse> uses;         // one forward pass

    std::vector<base::UnitId> unit_order() const; // of the uses
};

// Cuts the model: a unit for each decoder layer, the final norm with the last; embedding and head
// by rows into the fewest equal pieces (the last may be shorter) of at most piece_bytes of fp32, 0
// = the largest layer, at least 4 MiB; a row longer than that is a piece. A tied head is a second
// use of the embedding's pieces, in descending order, so that the next pass begins with what is
// still there.
Chain make_chain(const ModelConfig& config, base::Bytes piece_bytes);

} // namespace foregather::model
