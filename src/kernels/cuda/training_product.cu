// SPDX-License-Identifier: Apache-2.0
// Gradients of products: cuBLASLt's, around which rows that only round a sum up are cleared and
// biases' gradients are summed. How it multiplies is decided in lt_products.cpp.
#include "training.hpp"

#include "columns.cuh"
#include "lanes.cuh"

namespace foregather::kernels {
namespace {

constexpr int clear_threads = 256;

template <class T>
__global__ void __launch_bounds__(clear_threads) clear_rows_kernel(T* x, Elements n) {
    const Elements i = Elements{blockIdx.x} * clear_threads + threadIdx.x;
    if (i < n) {
        x[i] = T{};
    }
}

template <class T>
struct RowTerms {
    const T* dy;
    Elements width;

    __device__ float operator()(Elements row, Elements column) const {
        return to_float(dy[row * width + column]);
    }
};

} // namespace

void CudaTraining::clear_beyond(ConstSlab x, Elements rows, Stream& stream) {
    const Elements n = (round_up(rows, product_row_multiple) - rows) * (x.n / rows);
    if (n == 0) {
        return;
    }
    with_type(x.type, [&]<class T>(T) {
        // Kernels::row_multiple() says that what lies there may be overwritten.
        auto* beyond = const_cast<T*>(reinterpret_cast<const T*>(x.data)) + x.n;
        launch("clear_rows", clear_rows_kernel<T>, {blocks_of(n, clear_threads), clear_threads},
               {{writes(beyond, n)}}, stream, beyond, n);
    });
}

void CudaTraining::do_product_input_gradient(ConstSlab dy, ConstSlab w, Into into, Floats dx,
                                             Elements tokens, Stream& stream) {
    const Elements out = dy.n / tokens, in = static_cast<Elements>(dx.size()) / tokens;
    kernels_.multiply({Product::input_gradient, dy, w, {}, into, dx.data(), tokens, in, out, out},
                      stream);
}

void CudaTraining::do_product_weight_gradient(ConstSlab dy, ConstSlab x, Into into, Floats dw,
                                              Floats dbias, Elements tokens, Stream& stream) {
    const Elements out = dy.n / tokens, in = x.n / tokens;
    clear_beyond(dy, tokens, stream);
    clear_beyond(x, tokens, stream);
    kernels_.multiply({Product::weight_gradient, dy, x, {}, into, dw.data(), tokens, in, out, out},
                      stream);
    if (dbias.empty()) {
        return;
    }
    const ColumnBlocks cut(tokens, out, training_scratch_bytes / 8);
    const View<double> parts = scratch<double>("product_weight_gradient", 0, cut.blocks * out);
    with_type(dy.type, [&]<class T>(T) {
        launch("bias_parts", column_parts_kernel<RowTerms<T>>,
               {dim3(blocks_of(out, column_threads), static_cast<unsigned>(cut.blocks)),
                column_threads},
               {{reads(dy), writes(parts)}, static_cast<double>(dy.n)}, stream,
               RowTerms<T>{reinterpret_cast<const T*>(dy.data), out}, cut, parts.data());
    });
    launch("bias_gradient", add_column_parts_kernel<float>,
           {blocks_of(out, column_threads), column_threads},
           {{reads(parts.data(), cut.blocks * out), writes(dbias)},
            static_cast<double>(cut.blocks * out)},
           stream, parts.data(), cut, into == Into::add, dbias.data());
}

} // namespace foregather::kernels
