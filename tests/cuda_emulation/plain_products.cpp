// SPDX-License-Identifier: Apache-2.0
// CudaKernels without a library: products by their definition, in double. For tests of the kernels
// around them.
#include "../../src/kernels/cuda/cuda.hpp"

#include <bit>
#include <limits>

#include <foregather/device/cuda_stream.hpp>

#include "emulation.hpp"

namespace foregather::kernels {
namespace {

double value_at(const ConstSlab& slab, Elements i) {
    return static_cast<double>(
        slab.type == base::DType::f32
            ? slab.f32()[i]
            : std::bit_cast<float>(static_cast<std::uint32_t>(slab.bf16()[i]) << 16));
}

emulation::Touch touch(const ConstSlab& slab) {
    return {slab.data, static_cast<std::size_t>(slab.bytes().count), false};
}

} // namespace

struct CudaKernels::Products {};

CudaKernels::CudaKernels(device::Device& device, bool tf32)
    : logits_(device, logit_tokens * logit_columns, "logits of the head"), tf32_(tf32),
      shared_limit_(227 << 10) {}
CudaKernels::~CudaKernels() = default;

void CudaKernels::prepare(View<const ProductShape>) {}
std::string CudaKernels::product_name() const { return "plain sums"; }
std::string CudaKernels::algorithms() const { return ""; }

void CudaKernels::do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y,
                             Elements tokens, Stream& stream) {
    const Elements out = static_cast<Elements>(y.size()) / tokens;
    multiply(x, w, bias, into, y.data(), tokens, x.n / tokens, out, out, stream);
}

void CudaKernels::multiply(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, float* y,
                           Elements rows, Elements in, Elements out, Elements y_stride,
                           Stream& stream) {
    // As a device's product may, it overwrites rows up to the next multiple.
    const Elements whole =
        (rows + product_row_multiple - 1) / product_row_multiple * product_row_multiple;
    const auto y_bytes = static_cast<std::size_t>((whole - 1) * y_stride + out) * sizeof(float);
    const auto body = [=] {
        for (Elements i = 0; i < whole * out; ++i) {
            const Elements row = i / out, column = i % out;
            float& to = y[row * y_stride + column];
            if (row >= rows) {
                to = std::numeric_limits<float>::quiet_NaN();
                continue;
            }
            double sum = into == Into::add ? static_cast<double>(to) : 0.0;
            sum += bias.n > 0 ? value_at(bias, column) : 0.0;
            for (Elements k = 0; k < in; ++k) {
                sum += value_at(x, row * in + k) * value_at(w, column * in + k);
            }
            to = static_cast<float>(sum);
        }
    };
    device::check(emulation::enqueue_kernel("product", device::cuda_stream(stream),
                                            {touch(x), touch(w), touch(bias), {y, y_bytes, true}},
                                            body),
                  "multiply");
}

} // namespace foregather::kernels
