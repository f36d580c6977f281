// SPDX-License-Identifier: Apache-2.0
// AdamW on shards, and what is done with gradients before it: sums of squares, adding, scaling. It
// knows nothing of tensors: who decays is decided by the caller.
#include "training.hpp"

#include <algorithm>
#include <cmath>

#include "lanes.cuh"

namespace foregather::kernels {
namespace {

constexpr int entry_threads = 256;
constexpr int sum_threads = 512;
constexpr Elements squares_at_a_time = 16384;
constexpr Elements most_partial_sums = 65536;

// In double, rounded where they meet the tensors, as PyTorch does and the host's kernel.
struct AdamwFactors {
    float gradient_scale, decay, m_gain, beta2, v_gain, v_root, epsilon, step_size;
};

AdamwFactors factors_of(const AdamwStep& s) {
    const auto rest = [&](double beta) {
        return static_cast<double>(
            1.0L - std::pow(static_cast<long double>(beta), static_cast<long double>(s.step)));
    };
    return {static_cast<float>(s.gradient_scale),
            static_cast<float>(1.0 - s.learning_rate * s.weight_decay),
            static_cast<float>(1.0 - s.beta1),
            static_cast<float>(s.beta2),
            static_cast<float>(1.0 - s.beta2),
            static_cast<float>(std::sqrt(rest(s.beta2))),
            static_cast<float>(s.epsilon),
            static_cast<float>(s.learning_rate / rest(s.beta1))};
}

struct AdamwArrays {
    float* w;
    const float* g;
    float* m;
    float* v;
};

// The order of operations is that of Lanes::adamw(). copy may be null.
template <int n, class C>
__global__ void __launch_bounds__(entry_threads)
    adamw_kernel(const AdamwFactors f, const AdamwArrays to, C* copy, Elements groups) {
    const Elements at = (Elements{blockIdx.x} * entry_threads + threadIdx.x) * n;
    if (at >= groups * n) {
        return;
    }
    Few<n> w = load<n>(to.w + at);
    Few<n> m = load<n>(to.m + at);
    Few<n> v = load<n>(to.v + at);
    const Few<n> g = load<n>(to.g + at);
    for (int i = 0; i < n; ++i) {
        const float s = g.v[i] * f.gradient_scale;
        m.v[i] = m.v[i] + f.m_gain * (s - m.v[i]);
        v.v[i] = v.v[i] * f.beta2 + f.v_gain * s * s;
        const float root = sqrtf(v.v[i]) / f.v_root + f.epsilon;
        w.v[i] = w.v[i] * f.decay - f.step_size * (m.v[i] / root);
    }
    store<n>(to.w + at, w);
    store<n>(to.m + at, m);
    store<n>(to.v + at, v);
    if (copy != nullptr) {
        store<n>(copy + at, w);
    }
}

} // namespace

void CudaTraining::do_adamw(Floats w, ConstFloats g, Floats m, Floats v, const AdamwStep& step,
                            Slab copy, Stream& stream) {
    const auto n = static_cast<Elements>(w.size());
    with_type(copy.type, [&]<class C>(C) {
        auto* rounded = reinterpret_cast<C*>(copy.data);
        const bool fours = cut_into<4>(n, w.data(), g.data(), m.data(), v.data(), rounded);
        const Elements groups = fours ? n / 4 : n;
        launch("adamw", fours ? adamw_kernel<4, C> : adamw_kernel<1, C>,
               {blocks_of(groups, entry_threads), entry_threads},
               {{writes(w), reads(g), writes(m), writes(v), writes(copy)},
                16.0 * static_cast<double>(n)},
               stream, factors_of(step), AdamwArrays{w.data(), g.data(), m.data(), v.data()},
               rounded, groups);
    });
}

namespace {

struct SumShared {
    double sums[sum_threads / warp_size];
};

// The sum over the block's threads, in its first thread.
__device__ double block_sum(double mine) {
    auto& shared = block_shared<SumShared>();
    const double sum = warp_sum(mine);
    if (threadIdx.x % warp_size == 0) {
        shared.sums[threadIdx.x / warp_size] = sum;
    }
    __syncthreads();
    double whole = 0;
    for (int w = 0; threadIdx.x == 0 && w < sum_threads / warp_size; ++w) {
        whole += shared.sums[w];
    }
    return whole;
}

// parts[b] = the sum of squares of the b-th block of x.
template <int n>
__global__ void __launch_bounds__(sum_threads)
    squares_kernel(const float* x, Elements entries, Elements block, double* parts) {
    const Elements begin = blockIdx.x * block;
    const Elements end = min(begin + block, entries);
    double mine = 0;
    for (Elements i = begin + Elements{threadIdx.x} * n; i < end; i += sum_threads * n) {
        const Few<n> few = load<n>(x + i);
        for (int j = 0; j < n; ++j) {
            const auto value = static_cast<double>(few.v[j]);
            mine += value * value;
        }
    }
    const double sum = block_sum(mine);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(sum_threads)
    add_parts_kernel(const double* parts, Elements count, bool add, double* sum) {
    double mine = 0;
    for (Elements i = threadIdx.x; i < count; i += sum_threads) {
        mine += parts[i];
    }
    const double whole = block_sum(mine);
    if (threadIdx.x == 0) {
        sum[0] = (add ? sum[0] : 0.0) + whole;
    }
}

} // namespace

void CudaTraining::do_sum_of_squares(ConstFloats x, Into into, View<double> sum, Stream& stream) {
    const auto n = static_cast<Elements>(x.size());
    // Whole groups of four, so that none is in two blocks.
    const Elements block =
        std::max(squares_at_a_time, round_up(n / most_partial_sums + 1, Elements{4}));
    const unsigned blocks = blocks_of(n, block);
    const View<double> parts = scratch<double>("sum_of_squares", 0, blocks);
    if (blocks > 0) {
        launch("sum_of_squares", cut_into<4>(n, x.data()) ? squares_kernel<4> : squares_kernel<1>,
               {blocks, sum_threads}, {{reads(x), writes(parts)}, 2.0 * static_cast<double>(n)},
               stream, x.data(), n, block, parts.data());
    }
    launch("add_parts", add_parts_kernel, {1, sum_threads},
           {{reads(parts.data(), blocks), writes(sum)}, static_cast<double>(blocks)}, stream,
           parts.data(), Elements{blocks}, into == Into::add, sum.data());
}

namespace {

template <int n, class X>
__global__ void __launch_bounds__(entry_threads)
    add_kernel(const X* x, float* accumulator, Elements groups) {
    const Elements at = (Elements{blockIdx.x} * entry_threads + threadIdx.x) * n;
    if (at >= groups * n) {
        return;
    }
    Few<n> sum = load<n>(accumulator + at);
    const Few<n> more = load<n>(x + at);
    for (int i = 0; i < n; ++i) {
        sum.v[i] += more.v[i];
    }
    store<n>(accumulator + at, sum);
}

} // namespace

void CudaTraining::do_add(ConstSlab x, Floats accumulator, Stream& stream) {
    with_type(x.type, [&]<class X>(X) {
        const auto* from = reinterpret_cast<const X*>(x.data);
        const bool fours = cut_into<4>(x.n, accumulator.data(), from);
        const Elements groups = fours ? x.n / 4 : x.n;
        launch("add", fours ? add_kernel<4, X> : add_kernel<1, X>,
               {blocks_of(groups, entry_threads), entry_threads},
               {{reads(x), writes(accumulator)}, static_cast<double>(x.n)}, stream, from,
               accumulator.data(), groups);
    });
}

namespace {

template <int n>
__global__ void __launch_bounds__(entry_threads)
    scale_kernel(float* x, float factor, Elements groups) {
    const Elements at = (Elements{blockIdx.x} * entry_threads + threadIdx.x) * n;
    if (at >= groups * n) {
        return;
    }
    Few<n> few = load<n>(x + at);
    for (int i = 0; i < n; ++i) {
        few.v[i] *= factor;
    }
    store<n>(x + at, few);
}

template <int n>
__global__ void __launch_bounds__(entry_threads) clear_kernel(float* x, Elements groups) {
    const Elements at = (Elements{blockIdx.x} * entry_threads + threadIdx.x) * n;
    if (at < groups * n) {
        store<n>(x + at, Few<n>{});
    }
}

} // namespace

void CudaTraining::do_scale(Floats x, float factor, Stream& stream) {
    const auto n = static_cast<Elements>(x.size());
    const bool fours = cut_into<4>(n, x.data());
    const Elements groups = fours ? n / 4 : n;
    launch("scale", fours ? scale_kernel<4> : scale_kernel<1>,
           {blocks_of(groups, entry_threads), entry_threads}, {{writes(x)}, static_cast<double>(n)},
           stream, x.data(), factor, groups);
}

void CudaTraining::do_clear(Floats x, Stream& stream) {
    const auto n = static_cast<Elements>(x.size());
    const bool fours = cut_into<4>(n, x.data());
    const Elements groups = fours ? n / 4 : n;
    launch("clear", fours ? clear_kernel<4> : clear_kernel<1>,
           {blocks_of(groups, entry_threads), entry_threads}, {{writes(x)}}, stream, x.data(),
           groups);
}

} // namespace foregather::kernels
