// SPDX-License-Identifier: Apache-2.0
// Products of activations and weights, cut into a grid of library calls that depends on shapes
// alone.
#include "host.hpp"

namespace foregather::kernels {
namespace {

float value_at(const ConstSlab& bias, Elements j) {
    return bias.type == base::DType::f32
               ? bias.f32()[j]
               : std::bit_cast<float>(static_cast<std::uint32_t>(bias.bf16()[j]) << 16);
}

// Rows [begin, end) and columns [left, right) of y are set to the bias, or grow by it.
void start_with_bias(const ConstSlab& bias, Kernels::Into into, Floats y, Elements width,
                     base::Range rows, base::Range columns) {
    for (Elements row = rows.begin; row < rows.end; ++row) {
        float* out = y.data() + row * width;
        for (Elements j = columns.begin; j < columns.end; ++j) {
            const float offset = value_at(bias, j);
            out[j] = into == Kernels::Into::add ? out[j] + offset : offset;
        }
    }
}

} // namespace

void HostKernels::do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y,
                             Elements tokens, Stream& stream) {
    require_computable(w, "product");
    require_computable(bias, "product");
    const Elements in = x.n / tokens;
    const Elements out = static_cast<Elements>(y.size()) / tokens;
    const Elements block = product_rows;
    const Elements row_blocks = blocks_of(tokens, block);
    const Elements blocks = row_blocks * blocks_of(out, product_columns);
    // Blocks that share columns follow each other: their part of w stays in the cache.
    enqueue_rows(stream, blocks, 1, [=, this](Elements b, Elements, int thread) {
        const Elements top = b % row_blocks * block;
        const Elements left = b / row_blocks * product_columns;
        const base::Range rows{top, std::min(tokens, top + block)};
        const base::Range columns{left, std::min(out, left + product_columns)};
        if (bias.n > 0) {
            start_with_bias(bias, into, y, out, rows, columns);
        }
        const float beta = bias.n > 0 || into == Into::add ? 1.0F : 0.0F;
        const ProductSize size{rows.size(), columns.size(), in};
        multiply(Turned::right, size, {x, top * in, in}, {w, left * in, in}, beta,
                 {y.data() + top * out + left, out}, thread);
    });
}

} // namespace foregather::kernels
