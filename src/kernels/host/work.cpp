// SPDX-License-Identifier: Apache-2.0
// Products of any operands and the scratch of each thread. It decides how bf16 operands are widened
// for a library that multiplies fp32 alone.
#include "work.hpp"

#include <foregather/base/error.hpp>

namespace foregather::kernels {
namespace {

template <class T>
void call(const Products& products, Turned turned, ProductSize size, Matrix<const T> a,
          Matrix<const T> b, float beta, Matrix<float> c) {
    switch (turned) {
    case Turned::right:
        products.multiply_transposed(size, 1.0F, a, b, beta, c);
        break;
    case Turned::none:
        products.multiply(size, a, b, beta, c);
        break;
    case Turned::left:
        products.multiply_outer(size, a, b, beta, c);
        break;
    }
}

} // namespace

HostMeans::HostMeans(device::Device& device, int wanted_threads, const ProductChoice& choice)
    : products(make_products(choice)), lanes(kernels::lanes(best_lane_level())),
      threads(std::max(wanted_threads, 1)),
      scratch(device, threads * scratch_floats, "scratch of the kernels") {}

device::HostStream& HostWork::checked(Stream& stream) const {
    device::HostStream& host = device::host_stream(stream);
    if (host.threads() > means_->threads) {
        base::fail("stream " + stream.name() + " has " + std::to_string(host.threads()) +
                   " threads, the kernels have scratch for " + std::to_string(means_->threads));
    }
    return host;
}

float* HostWork::scratch_of(int thread) const {
    return means_->scratch.view().data() + thread * scratch_floats;
}

void HostWork::multiply(Turned turned, ProductSize size, Operand a, Operand b, float beta,
                        Matrix<float> c, int thread) const {
    if (a.type == base::DType::f32) {
        call(products_, turned, size, a.as<float>(), b.as<float>(), beta, c);
    } else if (products_.multiplies_bf16()) {
        call(products_, turned, size, a.as<Bf16>(), b.as<Bf16>(), beta, c);
    } else {
        multiply_widened(turned, size, a.as<Bf16>(), b.as<Bf16>(), beta, c, thread);
    }
}

// Products of bf16 are exact in fp32, and sums are fp32 in both.
void HostWork::multiply_widened(Turned turned, ProductSize size, Matrix<const Bf16> a,
                                Matrix<const Bf16> b, float beta, Matrix<float> c,
                                int thread) const {
    float* wide_a = scratch_of(thread) + block_floats;
    float* wide_b = wide_a + wide_rows * wide_terms;
    // As it lies: an operand's terms are its columns, or its rows if `by_terms`.
    const auto widen = [&](Matrix<const Bf16> from, bool by_terms, base::Range kept,
                           base::Range terms, float* to) {
        const base::Range rows = by_terms ? terms : kept, columns = by_terms ? kept : terms;
        for (Elements r = 0; r < rows.size(); ++r) {
            lanes_.from_bf16(from.data + (rows.begin + r) * from.stride + columns.begin,
                             to + r * columns.size(), columns.size());
        }
        return Matrix<const float>{to, columns.size()};
    };
    for (Elements top = 0; top < size.m; top += wide_rows) {
        const base::Range rows{top, std::min(size.m, top + wide_rows)};
        for (Elements k = 0; k < size.k; k += wide_terms) {
            const base::Range terms{k, std::min(size.k, k + wide_terms)};
            const auto left_operand = widen(a, turned == Turned::left, rows, terms, wide_a);
            for (Elements left = 0; left < size.n; left += wide_columns) {
                const base::Range columns{left, std::min(size.n, left + wide_columns)};
                call(products_, turned, {rows.size(), columns.size(), terms.size()}, left_operand,
                     widen(b, turned != Turned::right, columns, terms, wide_b),
                     k == 0 ? beta : 1.0F, {c.data + top * c.stride + left, c.stride});
            }
        }
    }
}

void HostWork::round_rows(Floats x, Elements width, bool packed, device::HostStream& host) const {
    constexpr Elements rows_at_a_time = 64;
    const Elements rows = static_cast<Elements>(x.size()) / width;
    each_block(host, rows, rows_at_a_time, [&](Elements begin, Elements end, int thread) {
        for (Elements row = begin; row < end; ++row) {
            float* values = x.data() + row * width;
            Bf16* bits = reinterpret_cast<Bf16*>(packed ? values : scratch_of(thread));
            lanes_.to_bf16(values, bits, width);
            if (!packed) {
                lanes_.from_bf16(bits, values, width);
            }
        }
    });
}

void require_computable(ConstSlab w, const char* kernel) {
    if (w.type != base::DType::f32 && w.type != base::DType::bf16) {
        base::fail(std::string(kernel) + ": the host computes with weights of fp32 or bf16, not " +
                   base::name_of(w.type));
    }
}

} // namespace foregather::kernels
