// SPDX-License-Identifier: Apache-2.0
// Launches attention's backward: means of rows first, then the gradients of queries, then those of
// keys and values. In which blocks is decided in attention_backward.cuh and tensor_backward.cuh.
#include "training.hpp"

#include <string>

#include "attention_backward.cuh"
#include "tensor_backward.cuh"

namespace foregather::kernels {
namespace {

constexpr int mean_threads = 128;
constexpr int mean_rows = mean_threads / warp_size;

// What out and its gradient have in common where a head's rows are: [rows, D].
template <class T>
struct MeanArrays {
    const T* out;
    const T* dout; // its rows of a token begin where fp32 ones would
    float* means;  // [rows]
    Elements rows;
    int heads, dim;
};

// means[t, h] = sum over the head's entries of out * dout, which is that of weights * dweights. A
// warp to a row.
template <class T>
__global__ void __launch_bounds__(mean_threads) means_kernel(const MeanArrays<T> all) {
    constexpr Elements apart = sizeof(float) / sizeof(T);
    const Elements row = Elements{blockIdx.x} * mean_rows + threadIdx.x / warp_size;
    if (row >= all.rows) {
        return;
    }
    const Elements token = row / all.heads, head = row % all.heads;
    const T* out = all.out + row * all.dim;
    const T* dout = all.dout + (token * apart * all.heads + head) * all.dim;
    double sum = 0;
    for (int i = static_cast<int>(threadIdx.x % warp_size); i < all.dim; i += warp_size) {
        sum += static_cast<double>(to_float(out[i])) * static_cast<double>(to_float(dout[i]));
    }
    sum = warp_sum(sum);
    if (threadIdx.x % warp_size == 0) {
        all.means[row] = static_cast<float>(sum);
    }
}

// What each of the gradients' launches reads.
struct Launched {
    const BackwardArrays& all;
    ConstFloats q, k, v, lse, dout;
    Ids offsets;
    Stream& stream;

    // `to` is what it writes; one of them may be empty.
    void operator()(const char* name, void (*kernel)(BackwardArrays), int threads,
                    std::size_t shared_bytes, int heads, double products, Floats to,
                    Floats and_to) const {
        const dim3 grid = query_blocks(all.in) * static_cast<unsigned>(heads);
        launch(name, kernel, {grid, static_cast<unsigned>(threads), shared_bytes},
               {{reads(q), reads(k), reads(v), reads(lse), reads(dout), reads(offsets),
                 reads(all.means, std::ssize(lse)), writes(to), writes(and_to)},
                products * attention_flops(all.in)},
               stream, all);
    }
};

} // namespace

// means, of bf16 after what makes them and the gradients is packed.
ConstFloats CudaTraining::attention_means(ConstSlab out, Floats dout, const AttentionShape& shape,
                                          Stream& stream) {
    const Elements rows = out.n / shape.head_dim;
    const Floats means = scratch<float>("attention_backward", 0, rows);
    if (out.type == base::DType::bf16) {
        const int width = shape.heads * shape.head_dim;
        launch("pack_rows", pack_rows_kernel,
               {static_cast<unsigned>(rows / shape.heads), tensor_threads}, {{writes(dout)}},
               stream, PackedRows{dout.data(), nullptr, width});
    }
    with_type(out.type, [&]<class T>(T) {
        launch("attention_means", means_kernel<T>, {blocks_of(rows, mean_rows), mean_threads},
               {{reads(out), reads(dout.data(), std::ssize(dout)), writes(means)},
                2.0 * static_cast<double>(out.n)},
               stream,
               MeanArrays<T>{reinterpret_cast<const T*>(out.data),
                             reinterpret_cast<const T*>(dout.data()), means.data(), rows,
                             shape.heads, shape.head_dim});
    });
    return means;
}

void CudaTraining::do_attention_backward(ConstFloats q, ConstFloats k, ConstFloats v, ConstSlab out,
                                         ConstFloats lse, Floats dout, Ids offsets,
                                         AttentionShape shape, Floats dq, Floats dk, Floats dv,
                                         Stream& stream) {
    const int dim = shape.head_dim;
    if (dim > kernels_.widest_head() || dim % 2 != 0) {
        base::fail("attention_backward: heads of " + std::to_string(dim) +
                   ", the device's kernels take even ones up to " +
                   std::to_string(kernels_.widest_head()));
    }
    if (!cut_into<4>(4, q.data(), k.data(), v.data(), dout.data(), dq.data(), dk.data(),
                     dv.data())) {
        base::fail("attention_backward: its arrays begin at addresses that are no multiple of 16 "
                   "bytes");
    }
    const ConstFloats means = attention_means(out, dout, shape, stream);
    const BackwardArrays all{attention_arrays(q, k, v, offsets, shape, {}),
                             dout.data(),
                             lse.data(),
                             means.data(),
                             dq.data(),
                             dk.data(),
                             dv.data()};
    const Launched run{all, q, k, v, lse, dout, offsets, stream};
    if (out.type == base::DType::f32) {
        with_width<32, 64, 128, 256>(dim, [&]<int padded>(std::integral_constant<int, padded>) {
            constexpr std::size_t bytes = Slices<padded>::shared_bytes;
            run("attention_dq", query_gradients_kernel<padded>, tile_threads, bytes, shape.heads,
                3.0, dq, {});
            run("attention_dkv", key_gradients_kernel<padded>, tile_threads, bytes, shape.kv_heads,
                4.0, dk, dv);
        });
        return;
    }
    with_width<16, 32, 64, 96, 128, 192, 256>(
        dim, [&]<int padded>(std::integral_constant<int, padded>) {
            constexpr std::size_t bytes = TensorTiles<padded>::shared_bytes;
            run("attention_dq_bf16", tensor_gradients_kernel<padded, Summed::queries>,
                tensor_threads, bytes, shape.heads, 3.0, dq, {});
            if constexpr (padded <= 128) {
                run("attention_dkv_bf16", tensor_gradients_kernel<padded, Summed::keys_and_values>,
                    tensor_threads, bytes, shape.kv_heads, 4.0, dk, dv);
            } else {
                run("attention_dk_bf16", tensor_gradients_kernel<padded, Summed::keys>,
                    tensor_threads, bytes, shape.kv_heads, 3.0, dk, {});
                run("attention_dv_bf16", tensor_gradients_kernel<padded, Summed::values>,
                    tensor_threads, bytes, shape.kv_heads, 2.0, {}, dv);
            }
        });
}

} // namespace foregather::kernels
