// SPDX-License-Identifier: Apache-2.0
// RMS norm, its mean square summed in double.
#include "host.hpp"

#include <cmath>

#include <foregather/base/error.hpp>

namespace foregather::kernels {
namespace {

constexpr Elements norm_rows = 32;

} // namespace

void HostKernels::do_rms_norm(ConstFloats x, ConstSlab w, float epsilon, Slab y, Stream& stream) {
    require_computable(w, "rms_norm");
    const Elements width = w.n;
    if (2 * width > block_floats) {
        base::fail("rms_norm: rows of " + std::to_string(width) + " do not fit the scratch");
    }
    const Elements rows = static_cast<Elements>(x.size()) / width;
    enqueue_rows(stream, rows, norm_rows, [=, this](Elements begin, Elements end, int thread) {
        float* normed = scratch_of(thread); // [width], on its way to bf16
        const float* gain = w.f32();
        if (w.type == base::DType::bf16) {
            lanes_.from_bf16(w.bf16(), normed + width, width);
            gain = normed + width;
        }
        for (Elements row = begin; row < end; ++row) {
            const float* in = x.data() + row * width;
            const double mean_square =
                lanes_.sum_of_squares(in, width) / static_cast<double>(width);
            const double inverse = 1.0 / std::sqrt(mean_square + static_cast<double>(epsilon));
            const auto factor = static_cast<float>(inverse);
            if (y.type == base::DType::f32) {
                lanes_.scale_by(in, factor, gain, y.f32() + row * width, width);
            } else {
                lanes_.scale_by(in, factor, gain, normed, width);
                lanes_.to_bf16(normed, y.bf16() + row * width, width);
            }
        }
    });
}

} // namespace foregather::kernels
