// SPDX-License-Identifier: Apache-2.0
// Products of activations and weights: rows rounded up, biases brought to fp32, the rest is
// cuBLASLt's.
#include "cuda.hpp"

#include <algorithm>

#include "products.hpp"

namespace foregather::kernels {
namespace {

constexpr Elements round_up(Elements n, Elements to) { return (n + to - 1) / to * to; }

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
        const bool add = p.into == Into::add;
        const Elements most = p.logits ? std::min(p.most_rows, logit_tokens) : p.most_rows;
        if (p.bias && p.type != base::DType::f32) {
            widest_bias = std::max(widest_bias, p.out);
        }
        for (Elements rows = product_row_multiple; rows <= round_up(most, product_row_multiple);
             rows += product_row_multiple) {
            if (!p.logits) {
                products_->lt.prepare({rows, p.in, p.out, p.out, p.type, p.bias, add});
                continue;
            }
            for (const Elements width : head_widths(p.out)) {
                products_->lt.prepare({rows, p.in, width, logit_columns, p.type, false, false});
            }
        }
    }
    if (widest_bias > products_->bias.size()) {
        products_->bias = {products_->device, widest_bias, "a bias in fp32"};
    }
}

void CudaKernels::do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y,
                             Elements tokens, Stream& stream) {
    const Elements out = static_cast<Elements>(y.size()) / tokens;
    multiply(x, w, bias, into, y.data(), tokens, x.n / tokens, out, out, stream);
}

void CudaKernels::multiply(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, float* y,
                           Elements rows, Elements in, Elements out, Elements y_stride,
                           Stream& stream) {
    const float* offsets = bias.f32();
    if (bias.n > 0 && bias.type != base::DType::f32) {
        // cuBLASLt adds a bias of the result's type.
        const Floats wide = products_->bias.first(bias.n);
        widen(bias, wide, stream);
        offsets = wide.data();
    }
    products_->lt.multiply({round_up(rows, product_row_multiple), in, out, y_stride, x.type,
                            bias.n > 0, into == Into::add},
                           {x.data, w.data, offsets, y}, stream);
}

} // namespace foregather::kernels
