// SPDX-License-Identifier: Apache-2.0
// Products of activations and weights: rows rounded up, biases brought to fp32, the rest is
// cuBLASLt's.
#include "cuda.hpp"

#include <algorithm>

#include "products.hpp"

namespace foregather::kernels {
namespace {

// The widths of the blocks in which a piece of the head is multiplied.
std::vector<Elements> head_widths(Elements rows) {
    std::vector<Elements> widths;
    if (rows >= logit_columns) {
        widths.push_back(logit_columns);
    }
    if (rows % logit_columns != 0) {
        widths.push_back(rows % logit_columns);
    }
    return widths;
}

} // namespace

void CudaKernels::prepare(View<const ProductShape> products) {
    Elements widest_bias = 0;
    for (const ProductShape& p : products) {
        const Elements most = p.logits ? std::min(p.most_rows, logit_tokens) : p.most_rows;
        if (p.bias && p.type != base::DType::f32) {
            widest_bias = std::max(widest_bias, p.out);
        }
        for (Elements rows = product_row_multiple; rows <= round_up(most, product_row_multiple);
             rows += product_row_multiple) {
            if (!p.logits) {
                products_->lt.prepare(
                    {rows, p.in, p.out, p.out, p.type, p.bias, p.into == Into::add, p.product});
                continue;
            }
            for (const Elements width : head_widths(p.out)) {
                prepare_logits(p, rows, width);
            }
        }
    }
    if (widest_bias > products_->bias.size()) {
        products_->bias = {products_->device, widest_bias, "a bias in fp32"};
    }
}

// Of a block of logits. What is summed over several blocks is set first, then added to.
void CudaKernels::prepare_logits(const ProductShape& p, Elements rows, Elements width) {
    if (p.product == Product::output) {
        products_->lt.prepare({rows, p.in, width, logit_columns, p.type, false, false});
        return;
    }
    for (const bool add : {false, true}) {
        products_->lt.prepare(
            {rows, p.in, width, logit_gradient_stride(p.type), p.type, false, add, p.product});
    }
}

void CudaKernels::do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y,
                             Elements tokens, Stream& stream) {
    const Elements out = static_cast<Elements>(y.size()) / tokens;
    multiply({Product::output, x, w, bias, into, y.data(), tokens, x.n / tokens, out, out}, stream);
}

void CudaKernels::multiply(const Multiplied& m, Stream& stream) {
    const float* offsets = m.bias.f32();
    if (m.bias.n > 0 && m.bias.type != base::DType::f32) {
        // cuBLASLt adds a bias of the result's type.
        const Floats wide = products_->bias.first(m.bias.n);
        widen(m.bias, wide, stream);
        offsets = wide.data();
    }
    products_->lt.multiply({round_up(m.rows, product_row_multiple), m.in, m.out, m.y_stride,
                            m.left.type, m.bias.n > 0, m.into == Into::add, m.product},
                           {m.left.data, m.right.data, offsets, m.result}, stream);
}

} // namespace foregather::kernels
