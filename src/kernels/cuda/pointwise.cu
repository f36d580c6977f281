// SPDX-License-Identifier: Apache-2.0
// Kernels that move or change rows one by one: embedding, RoPE, the gate, rows taken out. A block
// takes a row, so that what depends on the row is looked up once.
#include "cuda.hpp"

#include "lanes.cuh"

namespace foregather::kernels {
namespace {

constexpr int row_threads = 128;
constexpr int gate_threads = 256;

template <int n, class W>
__global__ void __launch_bounds__(row_threads)
    embed_kernel(const std::int32_t* ids, Elements first_row, const W* w, Elements rows, float* x,
                 Elements width) {
    const Elements t = blockIdx.x;
    const Elements row = ids[t] - first_row;
    if (row < 0 || row >= rows) {
        return;
    }
    for (Elements i = Elements{threadIdx.x} * n; i < width; i += row_threads * n) {
        store<n>(x + t * width + i, load<n>(w + row * width + i));
    }
}

} // namespace

void CudaKernels::do_embed(Ids ids, Elements first_row, ConstSlab w, Floats x, Elements width,
                           Stream& stream) {
    const Shape shape{static_cast<unsigned>(ids.size()), row_threads};
    const Work work{{reads(ids), reads(w), writes(x)}};
    with_type(w.type, [&]<class W>(W) {
        const auto* table = reinterpret_cast<const W*>(w.data);
        launch("embed",
               cut_into<4>(width, table, x.data()) ? embed_kernel<4, W> : embed_kernel<1, W>, shape,
               work, stream, ids.data(), first_row, table, w.n / width, x.data(), width);
    });
}

namespace {

template <int n>
__global__ void __launch_bounds__(row_threads)
    rope_kernel(float* x, const std::int32_t* positions, const float* cosines, const float* sines,
                Elements known, int heads, int half) {
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
                const float turned = a.v[l] * cosine.v[l] - b.v[l] * sine.v[l];
                b.v[l] = b.v[l] * cosine.v[l] + a.v[l] * sine.v[l];
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

void CudaKernels::do_rope(Floats x, Ids positions, ConstFloats cosines, ConstFloats sines,
                          int heads, int head_dim, Stream& stream) {
    const int half = head_dim / 2;
    const Elements known = static_cast<Elements>(cosines.size()) / half;
    const Shape shape{static_cast<unsigned>(positions.size()), row_threads};
    const Work work{{writes(x), reads(positions), reads(cosines), reads(sines)},
                    3.0 * static_cast<double>(x.size())};
    launch("rope",
           cut_into<4>(half, x.data(), cosines.data(), sines.data()) ? rope_kernel<4>
                                                                     : rope_kernel<1>,
           shape, work, stream, x.data(), positions.data(), cosines.data(), sines.data(), known,
           heads, half);
}

namespace {

// Groups of n numbers, one to a thread. No __restrict__: out may be gate.
template <int n, class Y>
__global__ void __launch_bounds__(gate_threads)
    silu_gate_kernel(const float* gate, const float* up, Y* out, Elements groups) {
    const Elements group = Elements{blockIdx.x} * gate_threads + threadIdx.x;
    if (group >= groups) {
        return;
    }
    Few<n> gated = load<n>(gate + group * n);
    const Few<n> factor = load<n>(up + group * n);
    for (int i = 0; i < n; ++i) {
        gated.v[i] = gated.v[i] / (1.0F + expf(-gated.v[i])) * factor.v[i];
    }
    store<n>(out + group * n, gated);
}

} // namespace

void CudaKernels::do_silu_gate(ConstFloats gate, ConstFloats up, Slab out, Stream& stream) {
    const auto n = static_cast<Elements>(gate.size());
    const Work work{{reads(gate), reads(up), writes(out)}, 5.0 * static_cast<double>(n)};
    with_type(out.type, [&]<class Y>(Y) {
        auto* gated = reinterpret_cast<Y*>(out.data);
        const bool fours = cut_into<4>(n, gate.data(), up.data(), gated);
        const Elements groups = fours ? n / 4 : n;
        const Shape shape{blocks_of(groups, gate_threads), gate_threads};
        launch("silu_gate", fours ? silu_gate_kernel<4, Y> : silu_gate_kernel<1, Y>, shape, work,
               stream, gate.data(), up.data(), gated, groups);
    });
}

namespace {

template <int n>
__global__ void __launch_bounds__(row_threads)
    take_rows_kernel(const float* x, Elements known, const std::int32_t* rows, float* y,
                     Elements width) {
    const Elements s = blockIdx.x;
    const Elements row = rows[s];
    const bool exists = row >= 0 && row < known;
    Few<n> few;
    for (int j = 0; j < n; ++j) {
        few.v[j] = not_a_number();
    }
    for (Elements i = Elements{threadIdx.x} * n; i < width; i += row_threads * n) {
        if (exists) {
            few = load<n>(x + row * width + i);
        }
        store<n>(y + s * width + i, few);
    }
}

} // namespace

void CudaKernels::do_take_rows(ConstFloats x, Ids rows, Floats y, Elements width, Stream& stream) {
    const Shape shape{static_cast<unsigned>(rows.size()), row_threads};
    const Elements known = static_cast<Elements>(x.size()) / width;
    const Work work{{reads(x), reads(rows), writes(y)}};
    launch("take_rows",
           cut_into<4>(width, x.data(), y.data()) ? take_rows_kernel<4> : take_rows_kernel<1>,
           shape, work, stream, x.data(), known, rows.data(), y.data(), width);
}

namespace {

template <int n>
__global__ void __launch_bounds__(gate_threads)
    widen_kernel(const Bf16* from, float* to, Elements groups) {
    const Elements i = (Elements{blockIdx.x} * gate_threads + threadIdx.x) * n;
    if (i < groups * n) {
        store<n>(to + i, load<n>(from + i));
    }
}

} // namespace

void CudaKernels::widen(ConstSlab from, Floats to, Stream& stream) {
    const auto* narrow = reinterpret_cast<const Bf16*>(from.data);
    const bool fours = cut_into<4>(from.n, narrow, to.data());
    const Elements groups = fours ? from.n / 4 : from.n;
    launch("widen", fours ? widen_kernel<4> : widen_kernel<1>,
           {blocks_of(groups, gate_threads), gate_threads}, {{reads(from), writes(to)}}, stream,
           narrow, to.data(), groups);
}

} // namespace foregather::kernels
