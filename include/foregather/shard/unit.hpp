// SPDX-License-Identifier: Apache-2.0
// A unit is what is gathered at once: parts of tensors laid flat in one buffer. The layout depends
// on the model and the deck alone, never on how many ranks share it.
#pragma once

#include <string>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>

namespace foregather::shard {

// Tensors of a unit begin at multiples of this, and a rank's part is a multiple of it: 512 bytes of
// fp32, so that shards of every element type cut at the same elements.
inline constexpr base::Elements alignment = 128;

// Rows [first_row, first_row + rows) of a tensor of the weights file, at `offset` of the unit.
struct TensorPart {
    std::string tensor; // Hugging Face name
    base::Shape shape;  // of the whole tensor
    std::int64_t first_row = 0;
    std::int64_t rows = 0; // along the first dimension
    base::Elements offset = 0;

    base::Elements row_elements() const {
        return shape.empty() || shape[0] == 0 ? 1 : base::elements_of(shape) / shape[0];
    }
    base::Elements elements() const { return rows * row_elements(); }
};

struct UnitSpec {
    std::string name; // e.g. "embedding.0", "layer.17", "head.3"
    std::vector<TensorPart> parts;
    base::Elements elements = 0; // end of the last part, a multiple of `alignment`

    // Appends a part at the next multiple of `alignment`.
    void append(const std::string& tensor, const base::Shape& shape, std::int64_t first_row,
                std::int64_t rows);
};

// The part's elements inside a gathered unit. `unit` holds spec.elements or more.
base::ConstSlab part_of(base::ConstSlab unit, const TensorPart& part);

} // namespace foregather::shard
