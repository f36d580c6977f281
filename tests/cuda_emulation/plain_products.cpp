// SPDX-License-Identifier: Apache-2.0
// CudaKernels without a library: products by their definition, in double. For tests of the kernels
// around them.
#include "../../src/kernels/cuda/cuda.hpp"

#include <bit>
#include <limits>

#include <foregather/device/cuda_stream.hpp>

#include "../../src/kernels/cuda/training.hpp"
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
    : logits_(device, logit_tokens * logit_columns, "logits of the head"),
      training_(std::make_unique<CudaTraining>(*this)), tf32_(tf32), shared_limit_(227 << 10) {}
CudaKernels::~CudaKernels() = default;

void CudaKernels::prepare(View<const ProductShape>) {}
std::string CudaKernels::product_name() const { return "plain sums"; }
std::string CudaKernels::algorithms() const { return ""; }

void CudaKernels::do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y,
                             Elements tokens, Stream& stream) {
    const Elements out = static_cast<Elements>(y.size()) / tokens;
    multiply({Product::output, x, w, bias, into, y.data(), tokens, x.n / tokens, out, out}, stream);
}

namespace {

// A row-major matrix, read as it lies or transposed.
struct Factor {
    ConstSlab slab;
    Elements stride;
    bool transposed;

    double at(Elements row, Elements column) const {
        return value_at(slab, transposed ? column * stride + row : row * stride + column);
    }
    emulation::Touch touch(Elements rows, Elements columns) const {
        const Elements n = (rows - 1) * stride + columns;
        return {slab.data, static_cast<std::size_t>(base::bytes_of(n, slab.type).count), false};
    }
};

} // namespace

// As a device's product may, it reads and overwrites rows of x and y up to the next multiple.
void CudaKernels::multiply(const Multiplied& m, Stream& stream) {
    const Elements whole = round_up(m.rows, product_row_multiple);
    const bool to_y = m.product == Product::output, to_w = m.product == Product::weight_gradient;
    const Factor left{m.left, to_y ? m.in : m.y_stride, to_w};
    const Factor right{m.right, m.in, to_y};
    const Elements rows = to_w ? m.out : whole, columns = to_y ? m.out : m.in;
    const Elements terms = to_y ? m.in : to_w ? whole : m.out;
    const Elements stride = to_y ? m.y_stride : m.in;
    const auto result_bytes =
        static_cast<std::size_t>((rows - 1) * stride + columns) * sizeof(float);
    const auto body = [=] {
        for (Elements i = 0; i < rows * columns; ++i) {
            const Elements row = i / columns, column = i % columns;
            float& to = m.result[row * stride + column];
            if (!to_w && row >= m.rows) {
                to = std::numeric_limits<float>::quiet_NaN();
                continue;
            }
            double sum = m.into == Into::add ? static_cast<double>(to) : 0.0;
            sum += m.bias.n > 0 ? value_at(m.bias, column) : 0.0;
            for (Elements k = 0; k < terms; ++k) {
                sum += left.at(row, k) * right.at(k, column);
            }
            to = static_cast<float>(sum);
        }
    };
    device::check(emulation::enqueue_kernel("product", device::cuda_stream(stream),
                                            {left.touch(whole, to_y ? m.in : m.out),
                                             right.touch(to_w ? whole : m.out, m.in),
                                             touch(m.bias),
                                             {m.result, result_bytes, true}},
                                            body),
                  "multiply");
}

} // namespace foregather::kernels
