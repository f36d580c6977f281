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
        const Matrix<float> c{y.data() + top * out + left, out};
        if (w.type == base::DType::f32) {
            products_.multiply_transposed(size, 1.0F, Matrix<const float>{x.f32() + top * in, in},
                                          Matrix<const float>{w.f32() + left * in, in}, beta, c);
        } else {
            multiply_bf16(size, {x.bf16() + top * in, in}, {w.bf16() + left * in, in}, beta, c,
                          thread);
        }
    });
}

void HostKernels::multiply_bf16(ProductSize size, Matrix<const Bf16> a, Matrix<const Bf16> b,
                                float beta, Matrix<float> c, int thread) const {
    if (products_.multiplies_bf16()) {
        products_.multiply_transposed(size, 1.0F, a, b, beta, c);
        return;
    }
    // Products of bf16 are exact in fp32, and sums are fp32 in both.
    constexpr Elements wide_rows = 128;
    float* wide_a = scratch_of(thread) + block_floats;
    float* wide_b = wide_a + wide_rows * wide_terms;
    const auto widen = [&](Matrix<const Bf16> from, Elements row, Elements rows, base::Range terms,
                           float* to) {
        for (Elements r = 0; r < rows; ++r) {
            lanes_.from_bf16(from.data + (row + r) * from.stride + terms.begin,
                             to + r * terms.size(), terms.size());
        }
    };
    for (Elements top = 0; top < size.m; top += wide_rows) {
        const Elements rows = std::min(wide_rows, size.m - top);
        for (Elements k = 0; k < size.k; k += wide_terms) {
            const base::Range terms{k, std::min(size.k, k + wide_terms)};
            widen(a, top, rows, terms, wide_a);
            for (Elements left = 0; left < size.n; left += wide_columns) {
                const Elements columns = std::min(wide_columns, size.n - left);
                widen(b, left, columns, terms, wide_b);
                products_.multiply_transposed(
                    {rows, columns, terms.size()}, 1.0F, Matrix<const float>{wide_a, terms.size()},
                    Matrix<const float>{wide_b, terms.size()}, k == 0 ? beta : 1.0F,
                    {c.data + top * c.stride + left, c.stride});
            }
        }
    }
}

} // namespace foregather::kernels
