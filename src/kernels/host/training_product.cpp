// SPDX-License-Identifier: Apache-2.0
// Gradients of products, cut into grids of library calls that depend on shapes alone. A weight's
// gradient is summed over all tokens by one call.
#include "training.hpp"

namespace foregather::kernels {
namespace {

constexpr Elements bias_columns = 256;

} // namespace

void HostTraining::do_product_input_gradient(ConstSlab dy, ConstSlab w, Into into, Floats dx,
                                             Elements tokens, Stream& stream) {
    require_computable(w, "product_input_gradient");
    const Elements out = dy.n / tokens;
    const Elements in = static_cast<Elements>(dx.size()) / tokens;
    const Elements row_blocks = blocks_of(tokens, product_rows);
    const Elements blocks = row_blocks * blocks_of(in, product_columns);
    const float beta = into == Into::add ? 1.0F : 0.0F;
    // As in product(): blocks that share columns of w follow each other.
    enqueue_rows(stream, blocks, 1, [=, this](Elements b, Elements, int thread) {
        const Elements top = b % row_blocks * product_rows;
        const Elements left = b / row_blocks * product_columns;
        const ProductSize size{std::min(product_rows, tokens - top),
                               std::min(product_columns, in - left), out};
        multiply(Turned::none, size, {dy, top * out, out}, {w, left, in}, beta,
                 {dx.data() + top * in + left, in}, thread);
    });
}

void HostTraining::do_product_weight_gradient(ConstSlab dy, ConstSlab x, Into into, Floats dw,
                                              Floats dbias, Elements tokens, Stream& stream) {
    require_computable(x, "product_weight_gradient");
    const Elements out = dy.n / tokens, in = x.n / tokens;
    const Elements row_blocks = blocks_of(out, product_rows);
    const Elements blocks = row_blocks * blocks_of(in, product_columns);
    const float beta = into == Into::add ? 1.0F : 0.0F;
    enqueue_rows(stream, blocks, 1, [=, this](Elements b, Elements, int thread) {
        const Elements top = b % row_blocks * product_rows;
        const Elements left = b / row_blocks * product_columns;
        const ProductSize size{std::min(product_rows, out - top),
                               std::min(product_columns, in - left), tokens};
        multiply(Turned::left, size, {dy, top, out}, {x, left, in}, beta,
                 {dw.data() + top * in + left, in}, thread);
    });
    if (!dbias.empty()) {
        enqueue_rows(stream, out, bias_columns,
                     [=, this](Elements begin, Elements end, int thread) {
                         sum_rows(dy, into, dbias, {begin, end}, thread);
                     });
    }
}

// dbias (+)= the sum of dy's rows, for some columns.
void HostTraining::sum_rows(ConstSlab dy, Into into, Floats dbias, base::Range columns,
                            int thread) const {
    const auto out = static_cast<Elements>(dbias.size());
    auto* sums = reinterpret_cast<double*>(scratch_of(thread));
    float* wide = scratch_of(thread) + 2 * bias_columns;
    std::fill_n(sums, columns.size(), 0.0);
    for (Elements at = columns.begin; at < dy.n; at += out) {
        const float* row = wide;
        if (dy.type == base::DType::f32) {
            row = dy.f32() + at;
        } else {
            lanes_.from_bf16(dy.bf16() + at, wide, columns.size());
        }
        for (Elements j = 0; j < columns.size(); ++j) {
            sums[j] += static_cast<double>(row[j]);
        }
    }
    float* to = dbias.data() + columns.begin;
    for (Elements j = 0; j < columns.size(); ++j) {
        const double before = into == Into::add ? static_cast<double>(to[j]) : 0.0;
        to[j] = static_cast<float>(before + sums[j]);
    }
}

} // namespace foregather::kernels
