// SPDX-License-Identifier: Apache-2.0
// Gradients of the kernels that move or change rows one by one: embedding, RoPE, the gate, rows
// taken out; and rounding.
#include "training.hpp"

#include "lanes.cuh"

namespace foregather::kernels {
namespace {

constexpr int row_threads = 128;
constexpr int entry_threads = 256;

template <int n, class Y>
__global__ void __launch_bounds__(entry_threads)
    convert_kernel(const float* x, Y* y, Elements groups) {
    const Elements group = Elements{blockIdx.x} * entry_threads + threadIdx.x;
    if (group < groups) {
        store<n>(y + group * n, load<n>(x + group * n));
    }
}

} // namespace

void CudaTraining::do_convert(ConstFloats x, Slab y, Stream& stream) {
    with_type(y.type, [&]<class Y>(Y) {
        auto* to = reinterpret_cast<Y*>(y.data);
        const bool fours = cut_into<4>(y.n, x.data(), to);
        const Elements groups = fours ? y.n / 4 : y.n;
        launch("convert", fours ? convert_kernel<4, Y> : convert_kernel<1, Y>,
               {blocks_of(groups, entry_threads), entry_threads}, {{reads(x), writes(y)}}, stream,
               x.data(), to, groups);
    });
}

namespace {

template <int n>
__global__ void __launch_bounds__(row_threads)
    rope_backward_kernel(float* x, const std::int32_t* positions, const float* cosines,
                         const float* sines, Elements known, int heads, int half) {
    const Elements t = blockIdx.x;
    const Elements position = positions[t];
    const bool in_tables = position >= 0 && position < known;
    const int groups = half / n; // of a head
    for (int i = static_cast<int>(threadIdx.x); i < heads * groups; i += row_threads) {
        const int head = i / groups;
        const int j = i % groups * n;
        float* low = x + (t * heads + head) * 2 * half + j;
        Few<n> a = load<n>(low);
        Few<n> b = load<n>(low + half);
        if (in_tables) {
            const Few<n> cosine = load<n>(cosines + position * half + j);
            const Few<n> sine = load<n>(sines + position * half + j);
            for (int l = 0; l < n; ++l) {
                const float turned = a.v[l] * cosine.v[l] + b.v[l] * sine.v[l];
                b.v[l] = b.v[l] * cosine.v[l] - a.v[l] * sine.v[l];
                a.v[l] = turned;
            }
        } else {
            for (int l = 0; l < n; ++l) {
                a.v[l] = b.v[l] = not_a_number();
            }
        }
        store<n>(low, a);
        store<n>(low + half, b);
    }
}

} // namespace

void CudaTraining::do_rope_backward(Floats dx, Ids positions, ConstFloats cosines,
                                    ConstFloats sines, int heads, int head_dim, Stream& stream) {
    const int half = head_dim / 2;
    const Elements known = static_cast<Elements>(cosines.size()) / half;
    const Work work{{writes(dx), reads(positions), reads(cosines), reads(sines)},
                    3.0 * static_cast<double>(dx.size())};
    launch("rope_backward",
           cut_into<4>(half, dx.data(), cosines.data(), sines.data()) ? rope_backward_kernel<4>
                                                                      : rope_backward_kernel<1>,
           {static_cast<unsigned>(positions.size()), row_threads}, work, stream, dx.data(),
           positions.data(), cosines.data(), sines.data(), known, heads, half);
}

namespace {

// silu(g) = g s with s = 1 / (1 + exp(-g)); silu'(g) = s + g s (1 - s), with 1 - s as
// 1 / (1 + exp(g)), which does not cancel. No __restrict__: results may lie where inputs do.
template <int n, class Y>
__global__ void __launch_bounds__(entry_threads)
    silu_gate_backward_kernel(const float* gate, const float* up, const float* dout, Y* dgate,
                              Y* dup, Elements groups) {
    const Elements group = Elements{blockIdx.x} * entry_threads + threadIdx.x;
    if (group >= groups) {
        return;
    }
    Few<n> g = load<n>(gate + group * n);
    Few<n> u = load<n>(up + group * n);
    const Few<n> d = load<n>(dout + group * n);
    for (int i = 0; i < n; ++i) {
        const float s = 1.0F / (1.0F + expf(-g.v[i]));
        const float rest = 1.0F / (1.0F + expf(g.v[i]));
        const float gated = g.v[i] * s;
        g.v[i] = d.v[i] * u.v[i] * (s + gated * rest);
        u.v[i] = d.v[i] * gated;
    }
    store<n>(dgate + group * n, g);
    store<n>(dup + group * n, u);
}

} // namespace

void CudaTraining::do_silu_gate_backward(ConstFloats gate, ConstFloats up, ConstFloats dout,
                                         Slab dgate, Slab dup, Stream& stream) {
    const Work work{{reads(gate), reads(up), reads(dout), writes(dgate), writes(dup)},
                    12.0 * static_cast<double>(gate.size())};
    with_type(dgate.type, [&]<class Y>(Y) {
        auto* to_gate = reinterpret_cast<Y*>(dgate.data);
        auto* to_up = reinterpret_cast<Y*>(dup.data);
        const bool fours =
            cut_into<4>(dgate.n, gate.data(), up.data(), dout.data(), to_gate, to_up);
        const Elements groups = fours ? dgate.n / 4 : dgate.n;
        launch("silu_gate_backward",
               fours ? silu_gate_backward_kernel<4, Y> : silu_gate_backward_kernel<1, Y>,
               {blocks_of(groups, entry_threads), entry_threads}, work, stream, gate.data(),
               up.data(), dout.data(), to_gate, to_up, groups);
    });
}

namespace {

struct SameShared {
    unsigned masks[row_threads / warp_size]; // which tokens of the last row_threads have the id
};

// Of the tokens first .. first + row_threads those before `end` that have this id, as a mask for
// each warp. The whole block calls it.
__device__ void find_same(const std::int32_t* ids, std::int32_t id, Elements first, Elements end,
                          SameShared& shared) {
    const Elements t = first + threadIdx.x;
    const unsigned mask = __ballot_sync(whole_warp, t < end && ids[t] == id);
    __syncthreads(); // nobody needs the last masks any more
    if (threadIdx.x % warp_size == 0) {
        shared.masks[threadIdx.x / warp_size] = mask;
    }
    __syncthreads();
}

// A block for each token; the first with an id does the work of all that have it, in their order.
template <int n>
__global__ void __launch_bounds__(row_threads)
    embed_backward_kernel(const std::int32_t* ids, Elements tokens, Elements first_row,
                          const float* dx, float* dw, Elements rows, Elements width) {
    auto& shared = block_shared<SameShared>();
    const Elements mine = blockIdx.x;
    const std::int32_t id = ids[mine];
    const Elements row = id - first_row;
    if (row < 0 || row >= rows) {
        return;
    }
    for (Elements first = 0; first < mine; first += row_threads) {
        find_same(ids, id, first, mine, shared);
        for (const unsigned mask : shared.masks) {
            if (mask != 0) {
                return; // in all threads alike
            }
        }
    }
    for (Elements first = mine; first < tokens; first += row_threads) {
        find_same(ids, id, first, tokens, shared);
        for (int w = 0; w < row_threads / warp_size; ++w) {
            for (unsigned left = shared.masks[w]; left != 0; left &= left - 1) {
                const Elements t = first + w * warp_size + __ffs(static_cast<int>(left)) - 1;
                for (Elements i = Elements{threadIdx.x} * n; i < width; i += row_threads * n) {
                    Few<n> sum = load<n>(dw + row * width + i);
                    const Few<n> more = load<n>(dx + t * width + i);
                    for (int j = 0; j < n; ++j) {
                        sum.v[j] += more.v[j];
                    }
                    store<n>(dw + row * width + i, sum);
                }
            }
        }
    }
}

} // namespace

void CudaTraining::do_embed_backward(Ids ids, Elements first_row, ConstFloats dx, Into into,
                                     Floats dw, Elements width, Stream& stream) {
    if (into == Into::overwrite) {
        clear(dw, stream);
    }
    const auto tokens = static_cast<Elements>(ids.size());
    launch("embed_backward",
           cut_into<4>(width, dx.data(), dw.data()) ? embed_backward_kernel<4>
                                                    : embed_backward_kernel<1>,
           {static_cast<unsigned>(tokens), row_threads},
           {{reads(ids), reads(dx), writes(dw)}, static_cast<double>(dx.size())}, stream,
           ids.data(), tokens, first_row, dx.data(), dw.data(),
           static_cast<Elements>(dw.size()) / width, width);
}

namespace {

template <int n>
__global__ void __launch_bounds__(row_threads)
    take_rows_backward_kernel(const float* dy, const std::int32_t* rows, float* dx, Elements known,
                              Elements width) {
    const Elements s = blockIdx.x;
    const Elements row = rows[s];
    if (row < 0 || row >= known) {
        return; // take_rows() made a row of NaN of it
    }
    for (Elements i = Elements{threadIdx.x} * n; i < width; i += row_threads * n) {
        Few<n> sum = load<n>(dx + row * width + i);
        const Few<n> more = load<n>(dy + s * width + i);
        for (int j = 0; j < n; ++j) {
            sum.v[j] += more.v[j];
        }
        store<n>(dx + row * width + i, sum);
    }
}

} // namespace

void CudaTraining::do_take_rows_backward(ConstFloats dy, Ids rows, Floats dx, Elements width,
                                         Stream& stream) {
    launch("take_rows_backward",
           cut_into<4>(width, dy.data(), dx.data()) ? take_rows_backward_kernel<4>
                                                    : take_rows_backward_kernel<1>,
           {static_cast<unsigned>(rows.size()), row_threads},
           {{reads(dy), reads(rows), writes(dx)}, static_cast<double>(dy.size())}, stream,
           dy.data(), rows.data(), dx.data(), static_cast<Elements>(dx.size()) / width, width);
}

} // namespace foregather::kernels
