// SPDX-License-Identifier: Apache-2.0
// Gradients of the RMS norm. With r = rsqrt(mean(x^2) + epsilon): dx = r (w dy) - x r^3 / C
// sum(w dy x), dw = the sum over rows of dy x r, in double, by fixed blocks of rows.
#include "training.hpp"

#include <cmath>

#include <foregather/base/error.hpp>

namespace foregather::kernels {
namespace {

constexpr Elements fewest_rows = 8; // of a block
constexpr Elements most_blocks = 256;
constexpr Elements gain_columns = 64;
constexpr Elements partial_sums = wide_floats / 2; // doubles beside the blocks of one thread

} // namespace

struct HostTraining::NormBackward {
    ConstFloats x, dy;
    Floats dx;
    ConstSlab w;
    double epsilon;
    bool overwrites;
};

// Rows of one block, whose sums go to dw [width].
void HostTraining::norm_rows_backward(const NormBackward& in, base::Range rows, double* dw,
                                      int thread) const {
    const Elements width = in.w.n;
    float* weighted = scratch_of(thread); // w dy of a row
    const float* gain = in.w.f32();
    if (in.w.type == base::DType::bf16) {
        lanes_.from_bf16(in.w.bf16(), weighted + width, width);
        gain = weighted + width;
    }
    std::fill_n(dw, width, 0.0);
    for (Elements row = rows.begin; row < rows.end; ++row) {
        const float* x = in.x.data() + row * width;
        const float* dy = in.dy.data() + row * width;
        float* dx = in.dx.data() + row * width;
        const double mean_square = lanes_.sum_of_squares(x, width) / static_cast<double>(width);
        const double inverse = 1.0 / std::sqrt(mean_square + in.epsilon);
        const auto factor = static_cast<float>(inverse);
        lanes_.scale_by(dy, 1.0F, gain, weighted, width);
        const double along = lanes_.dot(weighted, x, width) / static_cast<double>(width);
        lanes_.add_products(x, factor, dy, dw, width);
        if (in.overwrites) { // dy too, if it is the same
            std::fill_n(dx, width, 0.0F);
        }
        lanes_.add_scaled(weighted, factor, dx, width);
        lanes_.add_scaled(x, static_cast<float>(-along * inverse * inverse * inverse), dx, width);
    }
}

void HostTraining::do_rms_norm_backward(ConstFloats x, ConstSlab w, float epsilon, ConstFloats dy,
                                        Into into_dx, Floats dx, Into into_dw, Floats dw,
                                        Stream& stream) {
    require_computable(w, "rms_norm_backward");
    const Elements width = w.n;
    if (2 * width > block_floats) {
        base::fail("rms_norm_backward: rows of " + std::to_string(width) +
                   " do not fit the scratch");
    }
    const Elements rows = static_cast<Elements>(x.size()) / width;
    const Elements room = std::min(most_blocks, partial_sums / width);
    const Elements block = std::max(fewest_rows, blocks_of(rows, room));
    const NormBackward in{x, dy, dx, w, static_cast<double>(epsilon), into_dx == Into::overwrite};
    device::HostStream& host = checked(stream);
    host.enqueue([=, this, &host] {
        auto* parts = reinterpret_cast<double*>(scratch_of(0) + block_floats); // [blocks, width]
        each_block(host, rows, block, [&](Elements begin, Elements end, int thread) {
            norm_rows_backward(in, {begin, end}, parts + begin / block * width, thread);
        });
        each_block(host, width, gain_columns, [&](Elements begin, Elements end, int) {
            for (Elements c = begin; c < end; ++c) {
                float& to = dw[static_cast<std::size_t>(c)];
                double sum = into_dw == Into::add ? static_cast<double>(to) : 0.0;
                for (Elements b = 0; b < blocks_of(rows, block); ++b) {
                    sum += parts[b * width + c];
                }
                to = static_cast<float>(sum);
            }
        });
    });
}

} // namespace foregather::kernels
