// SPDX-License-Identifier: Apache-2.0
// Causal attention within documents, by blocks of queries and keys with a running softmax
// (arXiv:2205.14135), in true fp32: every thread holds 4 x 4 scores, then 4 rows of the output.
// Outputs in bf16 are computed on tensor cores by tensor_attention.cuh.
#include "cuda.hpp"

#include <cmath>
#include <string>

#include <foregather/base/error.hpp>

#include "attention.cuh"
#include "lanes.cuh"
#include "tensor_attention.cuh"
#include "tensor_backward.cuh"

namespace foregather::kernels {
namespace {

// Threads are a square: thread (y, x) has queries 4 y .. 4 y + 3, keys x + 16 j, and the columns
// of the output that columns_of() names.
constexpr int side = 16;
constexpr int plain_threads = side * side;
constexpr int thread_rows = query_rows / side;
constexpr int thread_keys = key_rows / side;
constexpr int score_stride = key_rows + 4;

// dim: the head's width, rounded up; what lies beyond the head is 0.
template <int dim>
struct Plain {
    static constexpr int stride = dim + 4; // neighbouring rows lie in other banks
    static constexpr int columns = dim / side;
    static constexpr int group = columns < 4 ? columns : 4; // that many columns are neighbours
    static constexpr std::size_t shared_bytes =
        (2 * query_rows * stride + query_rows * score_stride) * sizeof(float);

    float* q = dynamic_shared<float>(); // [query_rows, stride]
    float* kv = q + query_rows * stride;
    float* weights = kv + key_rows * stride; // [query_rows, score_stride]
    int x = static_cast<int>(threadIdx.x) % side;
    int y = static_cast<int>(threadIdx.x) / side;

    // Of the output's columns in group g the first of this thread.
    __device__ int column(int g) const { return (g * side + x) * group; }
};

// What a thread keeps of its 4 queries while it goes through the keys.
template <int dim>
struct Running {
    float maximum[thread_rows];
    float sum[thread_rows];
    float mixed[thread_rows][Plain<dim>::columns];
};

template <int dim>
__device__ void score(const Plain<dim>& my, float (&scores)[thread_rows][thread_keys]) {
    constexpr int stride = Plain<dim>::stride;
#pragma unroll 4
    for (int d = 0; d < dim; d += 4) {
        Few<4> q[thread_rows], k[thread_keys];
#pragma unroll
        for (int i = 0; i < thread_rows; ++i) {
            q[i] = load<4>(my.q + (my.y * thread_rows + i) * stride + d);
        }
#pragma unroll
        for (int j = 0; j < thread_keys; ++j) {
            k[j] = load<4>(my.kv + (my.x + j * side) * stride + d);
        }
#pragma unroll
        for (int i = 0; i < thread_rows; ++i) {
#pragma unroll
            for (int j = 0; j < thread_keys; ++j) {
#pragma unroll
                for (int l = 0; l < 4; ++l) {
                    scores[i][j] += q[i].v[l] * k[j].v[l];
                }
            }
        }
    }
}

// The largest over the threads that share a row, or their sum; the same in all of them.
__device__ float row_largest(float x) {
    for (int step = side / 2; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(whole_warp, x, step)); // passes over a NaN
    }
    return x;
}
__device__ float row_total(float x) {
    for (int step = side / 2; step > 0; step /= 2) {
        x += __shfl_xor_sync(whole_warp, x, step);
    }
    return x;
}

// Scores become weights exp(score - maximum), 0 for keys that the query does not see; what was
// summed and mixed so far falls to the new maximum.
template <int dim>
__device__ void soften(const Plain<dim>& my, float (&scores)[thread_rows][thread_keys],
                       Running<dim>& running, const AttentionArrays& in, Elements query,
                       Elements key, Elements keys_end) {
#pragma unroll
    for (int i = 0; i < thread_rows; ++i) {
        bool seen[thread_keys];
        float largest = -INFINITY;
#pragma unroll
        for (int j = 0; j < thread_keys; ++j) {
            const Elements at = key + my.x + j * side;
            seen[j] = at < keys_end && sees(query + my.y * thread_rows + i, at, in.window);
            scores[i][j] *= in.scale;
            largest = seen[j] ? fmaxf(largest, scores[i][j]) : largest;
        }
        const float maximum = fmaxf(running.maximum[i], row_largest(largest));
        const float shrink =
            maximum > running.maximum[i] ? expf(running.maximum[i] - maximum) : 1.0F;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < thread_keys; ++j) {
            const float weight = seen[j] ? expf(scores[i][j] - maximum) : 0.0F;
            sum += weight;
            my.weights[(my.y * thread_rows + i) * score_stride + my.x + j * side] = weight;
        }
        running.maximum[i] = maximum;
        running.sum[i] = running.sum[i] * shrink + row_total(sum);
#pragma unroll
        for (int c = 0; c < Plain<dim>::columns; ++c) {
            running.mixed[i][c] *= shrink;
        }
    }
}

template <int dim>
__device__ void mix(const Plain<dim>& my, Running<dim>& running) {
    constexpr int group = Plain<dim>::group;
#pragma unroll 2
    for (int key = 0; key < key_rows; key += 4) {
        Few<4> weights[thread_rows];
#pragma unroll
        for (int i = 0; i < thread_rows; ++i) {
            weights[i] = load<4>(my.weights + (my.y * thread_rows + i) * score_stride + key);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
            for (int g = 0; g < Plain<dim>::columns / group; ++g) {
                const Few<group> v =
                    load<group>(my.kv + (key + k) * Plain<dim>::stride + my.column(g));
#pragma unroll
                for (int i = 0; i < thread_rows; ++i) {
#pragma unroll
                    for (int l = 0; l < group; ++l) {
                        running.mixed[i][g * group + l] += weights[i].v[k] * v.v[l];
                    }
                }
            }
        }
    }
}

template <int dim>
__device__ void write_rows(const Plain<dim>& my, const Running<dim>& running,
                           const AttentionArrays& in, const RowBlock& block, float* out) {
    constexpr int group = Plain<dim>::group;
#pragma unroll
    for (int i = 0; i < thread_rows; ++i) {
        const Elements query = block.begin + my.y * thread_rows + i;
        const float inverse = 1.0F / running.sum[i];
        if (in.lse != nullptr && query < block.end && my.x == 0) {
            in.lse[query * in.heads + block.head] = running.maximum[i] + logf(running.sum[i]);
        }
        float* row = out + (query * in.heads + block.head) * in.dim;
#pragma unroll
        for (int c = 0; c < Plain<dim>::columns; ++c) {
            const int column = my.column(c / group) + c % group;
            if (query < block.end && column < in.dim) {
                row[column] = running.mixed[i][c] * inverse;
            }
        }
    }
}

template <int dim>
__global__ void __launch_bounds__(plain_threads)
    attention_kernel(const AttentionArrays in, float* out) {
    if (!offsets_lead(in)) {
        poison(in, out, in.heads);
        return;
    }
    const RowBlock block = row_block_of(in);
    if (block.begin >= block.end) {
        return;
    }
    const Plain<dim> my;
    Running<dim> running{};
    for (float& maximum : running.maximum) {
        maximum = -INFINITY;
    }
    const Elements q_stride = Elements{in.heads} * in.dim;
    const Elements kv_stride = Elements{in.kv_heads} * in.dim;
    const int kv_column = block.head / (in.heads / in.kv_heads) * in.dim;
    fetch<plain_threads, dim, Plain<dim>::stride>(
        my.q, in.q + block.begin * q_stride + block.head * in.dim, q_stride,
        block.end - block.begin, in.dim);
    for (Elements key = first_key_of(block, in.window); key < block.end; key += key_rows) {
        const Elements at = key * kv_stride + kv_column;
        __syncthreads(); // nobody needs the last values any more
        fetch<plain_threads, dim, Plain<dim>::stride>(my.kv, in.k + at, kv_stride, block.end - key,
                                                      in.dim);
        __syncthreads();
        float scores[thread_rows][thread_keys] = {};
        score(my, scores);
        soften(my, scores, running, in, block.begin, key, block.end);
        __syncthreads(); // the weights are there, and nobody needs the keys any more
        fetch<plain_threads, dim, Plain<dim>::stride>(my.kv, in.v + at, kv_stride, block.end - key,
                                                      in.dim);
        __syncthreads();
        mix(my, running);
    }
    write_rows(my, running, in, block, out);
}

} // namespace

int CudaKernels::widest_head() const {
    constexpr std::size_t fixed = 1024; // static shared memory, and what CUDA keeps of a block's
    const auto fits = [this]<int dim>(std::integral_constant<int, dim>) {
        return std::max({Plain<dim>::shared_bytes, Tensor<dim>::shared_bytes,
                         Slices<dim>::shared_bytes, TensorTiles<dim>::shared_bytes}) +
                   fixed <=
               shared_limit_;
    };
    int widest = 0;
    const auto look = [&](auto dim) { widest = fits(dim) ? dim.value : widest; };
    look(std::integral_constant<int, 64>{});
    look(std::integral_constant<int, 128>{});
    look(std::integral_constant<int, kernels::widest_head>{});
    return widest;
}

void CudaKernels::do_attention(Floats q, Floats k, Floats v, Ids offsets, AttentionShape shape,
                               Slab out, Floats lse, Stream& stream) {
    const int dim = shape.head_dim;
    if (dim > widest_head() || dim % 2 != 0) {
        base::fail("attention: heads of " + std::to_string(dim) +
                   ", the device's kernels take even ones up to " + std::to_string(widest_head()));
    }
    if (!cut_into<4>(4, q.data(), k.data(), v.data(), out.f32())) {
        base::fail("attention: its arrays begin at addresses that are no multiple of 16 bytes");
    }
    const AttentionArrays in = attention_arrays(q, k, v, offsets, shape, lse);
    const dim3 grid = query_blocks(in) * static_cast<unsigned>(shape.heads);
    const auto run = [&](const char* name, auto kernel, int threads, std::size_t shared_bytes,
                         auto* to) {
        launch(name, kernel, {grid, static_cast<unsigned>(threads), shared_bytes},
               {{reads(q.data(), std::ssize(q)), reads(k.data(), std::ssize(k)),
                 reads(v.data(), std::ssize(v)), reads(offsets), writes(out), writes(lse)},
                2.0 * attention_flops(in)},
               stream, in, to);
    };
    const auto run_plain = [&]<int padded>(std::integral_constant<int, padded>) {
        run("attention", attention_kernel<padded>, plain_threads, Plain<padded>::shared_bytes,
            out.f32());
    };
    const auto run_tensor = [&]<int padded>(std::integral_constant<int, padded>) {
        run("attention_bf16", tensor_attention_kernel<padded>, tensor_threads,
            Tensor<padded>::shared_bytes, out.bf16());
    };
    if (out.type == base::DType::bf16) {
        launch("pack_rows", pack_rows_kernel,
               {dim3(static_cast<unsigned>(in.tokens), 2), tensor_threads},
               {{writes(k.data(), std::ssize(k)), writes(v.data(), std::ssize(v))}}, stream,
               PackedRows{k.data(), v.data(), shape.kv_heads * dim});
        with_width<16, 32, 64, 96, 128, 192, 256>(dim, run_tensor);
    } else {
        with_width<32, 64, 128, 256>(dim, run_plain);
    }
}

} // namespace foregather::kernels
