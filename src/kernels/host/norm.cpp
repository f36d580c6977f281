// SPDX-License-Identifier: Apache-2.0
// RMS norm, its mean square summed in double.
#include "host.hpp"

#include <cmath>

namespace foregather::kernels {
namespace {

constexpr Elements norm_rows = 32;

} // namespace

void HostKernels::do_rms_norm(ConstFloats x, ConstSlab w, float epsilon, Slab y, Stream& stream) {
    const float* gain = weight(w, "rms_norm");
    const Elements width = w.n;
    const Elements rows = static_cast<Elements>(x.size()) / width;
    enqueue_rows(stream, rows, norm_rows, [=, this](Elements begin, Elements end, int) {
        for (Elements row = begin; row < end; ++row) {
            const float* in = x.data() + row * width;
            const double mean_square =
                lanes_.sum_of_squares(in, width) / static_cast<double>(width);
            const double inverse = 1.0 / std::sqrt(mean_square + static_cast<double>(epsilon));
            lanes_.scale_by(in, static_cast<float>(inverse), gain, y.f32() + row * width, width);
        }
    });
}

} // namespace foregather::kernels
