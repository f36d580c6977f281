// SPDX-License-Identifier: Apache-2.0
// Products of activations and weights, cut into a grid of OpenBLAS calls that depends on shapes
// alone.
#include "host.hpp"

namespace foregather::kernels {
namespace {

// Rows [begin, end) and columns [left, right) of y are set to the bias, or grow by it.
void start_with_bias(const float* bias, Kernels::Into into, Floats y, Elements width,
                     base::Range rows, base::Range columns) {
    for (Elements row = rows.begin; row < rows.end; ++row) {
        float* out = y.data() + row * width;
        for (Elements j = columns.begin; j < columns.end; ++j) {
            out[j] = into == Kernels::Into::add ? out[j] + bias[j] : bias[j];
        }
    }
}

} // namespace

void HostKernels::do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y,
                             Elements tokens, Stream& stream) {
    const float* matrix = weight(w, "product");
    const float* offset = bias.n > 0 ? weight(bias, "product") : nullptr;
    const Elements in = x.n / tokens;
    const Elements out = static_cast<Elements>(y.size()) / tokens;
    const Elements block = product_rows(tokens);
    const Elements row_blocks = blocks_of(tokens, block);
    const Elements blocks = row_blocks * blocks_of(out, product_columns);
    // Blocks that share columns follow each other: their part of w stays in the cache.
    enqueue_rows(stream, blocks, 1, [=, this](Elements b, Elements, int) {
        const Elements top = b % row_blocks * block;
        const Elements left = b / row_blocks * product_columns;
        const base::Range rows{top, std::min(tokens, top + block)};
        const base::Range columns{left, std::min(out, left + product_columns)};
        if (offset != nullptr) {
            start_with_bias(offset, into, y, out, rows, columns);
        }
        const bool keep = offset != nullptr || into == Into::add;
        blas_.multiply_transposed({rows.size(), columns.size(), in}, 1.0F, {x.f32() + top * in, in},
                                  {matrix + left * in, in}, keep ? 1.0F : 0.0F,
                                  {y.data() + top * out + left, out});
    });
}

} // namespace foregather::kernels
