// SPDX-License-Identifier: Apache-2.0
// The head: logits of a block of tokens and vocabulary rows at a time, folded into a running
// log-sum-exp and what else is asked for. One block folds one row of logits, held in registers.
#include "cuda.hpp"

#include <algorithm>

#include "lanes.cuh"
#include "top.cuh"

namespace foregather::kernels {
namespace {

constexpr int begin_threads = 256;
constexpr int fold_warps = fold_threads / warp_size;

__device__ float minus_infinity() { return -INFINITY; }

// HeadState as kernels take it, of the rows that begin at some token.
struct State {
    float* maximum;
    double* sum;
    float* target;
    std::int32_t* best_id;
    double* weighted; // or null
    TopToken* top;    // or null
    float* logits;    // or null
    Elements k;
    Elements vocabulary;
    float scale;
};

State state_from(const HeadState& state, Elements s) {
    const auto rows = static_cast<Elements>(state.maximum.size());
    const Elements k = static_cast<Elements>(state.top.size()) / rows;
    const Elements vocabulary = static_cast<Elements>(state.logits.size()) / rows;
    return {state.maximum.data() + s,
            state.sum.data() + s,
            state.target.data() + s,
            state.best_id.data() + s,
            state.weighted.empty() ? nullptr : state.weighted.data() + s,
            k > 0 ? state.top.data() + s * k : nullptr,
            vocabulary > 0 ? state.logits.data() + s * vocabulary : nullptr,
            k,
            vocabulary,
            state.scale};
}

__global__ void __launch_bounds__(begin_threads) head_begin_kernel(State state, Elements rows) {
    const Elements i = Elements{blockIdx.x} * begin_threads + threadIdx.x;
    if (i < rows) {
        state.maximum[i] = minus_infinity();
        state.sum[i] = 0;
        state.target[i] = not_a_number(); // stays, if no piece holds the target
        state.best_id[i] = no_id;
        if (state.weighted != nullptr) {
            state.weighted[i] = 0;
        }
    }
    if (i < rows * state.k) {
        state.top[i] = {minus_infinity(), no_id};
    }
}

} // namespace

void CudaKernels::do_head_begin(HeadState state, Stream& stream) {
    const auto rows = static_cast<Elements>(state.maximum.size());
    const auto entries = std::max(rows, static_cast<Elements>(state.top.size()));
    launch("head_begin", head_begin_kernel, {blocks_of(entries, begin_threads), begin_threads},
           {{writes(state.maximum), writes(state.sum), writes(state.target), writes(state.best_id),
             writes(state.weighted), writes(state.top)}},
           stream, state_from(state, 0), rows);
}

namespace {

struct Best {
    float logit;
    int at;
};

struct FoldShared {
    Best best[fold_warps];
    double plain[fold_warps];
    double weighted[fold_warps];
    float maximum; // of the row, after this block of logits
    bool top_may_change;
};

// The larger logit, of equal ones that which comes first. A NaN is passed over.
__device__ Best better(const Best& a, const Best& b) {
    return b.logit > a.logit || (b.logit == a.logit && b.at < a.at) ? b : a;
}

__device__ Best best_of(const RowPart& row, int n, FoldShared& shared) {
    Best best{minus_infinity(), n};
#pragma unroll
    for (int i = 0; i < row_part; ++i) {
        if (row.logit[i] > best.logit) {
            best = {row.logit[i], place_of(i)};
        }
    }
#pragma unroll
    for (int step = warp_size / 2; step > 0; step /= 2) {
        const Best other{__shfl_xor_sync(whole_warp, best.logit, step),
                         __shfl_xor_sync(whole_warp, best.at, step)};
        best = better(best, other);
    }
    if (threadIdx.x % warp_size == 0) {
        shared.best[threadIdx.x / warp_size] = best;
    }
    __syncthreads();
    best = shared.best[0];
    for (int w = 1; w < fold_warps; ++w) {
        best = better(best, shared.best[w]);
    }
    return best;
}

// Takes the row's new maximum into its state: what was summed so far falls to it.
__device__ void raise(State& state, Elements s, const Best& best, Elements first_id) {
    const float maximum = state.maximum[s];
    if (best.logit >= maximum) {
        const auto id = static_cast<std::int32_t>(first_id + best.at);
        state.best_id[s] = best.logit > maximum ? id : min(id, state.best_id[s]);
    }
    if (best.logit > maximum) {
        const float step = (maximum - best.logit) * state.scale;
        const double shrink = exp(static_cast<double>(step));
        const double sum = state.sum[s];
        if (state.weighted != nullptr && sum > 0) { // each d falls by the step as well
            state.weighted[s] = (state.weighted[s] + static_cast<double>(step) * sum) * shrink;
        }
        state.sum[s] = sum * shrink;
        state.maximum[s] = best.logit;
    }
}

// Adds the row's exponentials, in an order that the block's shape alone decides.
__device__ void add_sums(const RowPart& row, State& state, Elements s, FoldShared& shared) {
    constexpr float beyond = -200.0F; // exp of it is 0, and 0 x infinity would be NaN
    double plain = 0;
    double weighted = 0;
#pragma unroll
    for (int i = 0; i < row_part; ++i) {
        const float d = (row.logit[i] - shared.maximum) * state.scale;
        const auto e = static_cast<double>(expf(d));
        plain += e;
        if (state.weighted != nullptr) {
            weighted += static_cast<double>(d < beyond ? beyond : d) * e;
        }
    }
    plain = warp_sum(plain);
    weighted = warp_sum(weighted);
    if (threadIdx.x % warp_size == 0) {
        shared.plain[threadIdx.x / warp_size] = plain;
        shared.weighted[threadIdx.x / warp_size] = weighted;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        plain = weighted = 0;
        for (int w = 0; w < fold_warps; ++w) {
            plain += shared.plain[w];
            weighted += shared.weighted[w];
        }
        state.sum[s] += plain;
        if (state.weighted != nullptr) {
            state.weighted[s] += weighted;
        }
    }
}

// Takes the logits of ids first_id .. first_id + n of each row into the state. Whatever is not
// finite among them makes the sum NaN: infinity - infinity is one, and exp keeps one.
__global__ void __launch_bounds__(fold_threads, 2)
    fold_logits_kernel(const float* logits, int n, Elements first_id, const std::int32_t* targets,
                       State state) {
    auto& shared = block_shared<FoldShared>();
    const Elements s = blockIdx.x;
    const float* from = logits + s * logit_columns;
    const RowPart row = load_row(from, n);
    const Best best = best_of(row, n, shared);
    if (threadIdx.x == 0) {
        raise(state, s, best, first_id);
        shared.maximum = state.maximum[s];
        shared.top_may_change = state.top != nullptr && best.logit >= state.top[s * state.k].logit;
        const Elements target = targets[s] - first_id;
        if (target >= 0 && target < n) {
            state.target[s] = from[target];
        }
    }
    __syncthreads();
    add_sums(row, state, s, shared);
    if (state.logits != nullptr) {
        float* to = state.logits + s * state.vocabulary + first_id;
        for (int i = static_cast<int>(threadIdx.x); i < n; i += fold_threads) {
            to[i] = from[i];
        }
    }
    if (shared.top_may_change) {
        fold_top(row, n, first_id, state.top + s * state.k, state.k);
    }
}

} // namespace

void CudaKernels::do_head_piece(ConstSlab x, ConstSlab w, Elements first_row, Ids targets,
                                HeadState state, Stream& stream) {
    const auto scored = static_cast<Elements>(targets.size());
    const Elements width = x.n / scored;
    const Elements rows = w.n / width;
    for (Elements s = 0; s < scored; s += logit_tokens) {
        const Elements tokens = std::min(logit_tokens, scored - s);
        const State at = state_from(state, s);
        for (Elements row = 0; row < rows; row += logit_columns) {
            const Elements n = std::min(logit_columns, rows - row);
            float* logits = logits_.view().data();
            multiply({Product::output,
                      x.part(s * width, tokens * width),
                      w.part(row * width, n * width),
                      {},
                      Into::overwrite,
                      logits,
                      tokens,
                      width,
                      n,
                      logit_columns},
                     stream);
            const double folded = static_cast<double>(tokens) * static_cast<double>(n);
            launch("fold_logits", fold_logits_kernel,
                   {static_cast<unsigned>(tokens), fold_threads, top_shared_bytes(at.k)},
                   {{reads(logits, tokens * logit_columns), reads(targets.data() + s, tokens),
                     writes(at.maximum, tokens), writes(at.sum, tokens), writes(at.target, tokens),
                     writes(at.best_id, tokens), writes(at.weighted, at.weighted ? tokens : 0),
                     writes(at.top, at.k * tokens), writes(at.logits, at.vocabulary * tokens)},
                    4.0 * folded},
                   stream, logits, static_cast<int>(n), first_row + row, targets.data() + s, at);
        }
    }
}

namespace {

struct Results {
    float* logprob;
    std::uint8_t* greedy;
    float* entropy;
    std::int32_t* top_tokens;
    float* top_logprobs;
};

struct Normalizer {
    double maximum, scale, log_sum;

    __device__ Normalizer(const State& state, Elements s)
        : maximum(static_cast<double>(state.maximum[s])), scale(static_cast<double>(state.scale)),
          log_sum(log(state.sum[s])) {}
    __device__ float logprob(float logit) const {
        return static_cast<float>((static_cast<double>(logit) - maximum) * scale - log_sum);
    }
};

__global__ void __launch_bounds__(begin_threads)
    head_end_kernel(State state, const std::int32_t* targets, Results results, Elements rows) {
    const Elements s = Elements{blockIdx.x} * begin_threads + threadIdx.x;
    if (s >= rows) {
        return;
    }
    const Normalizer row(state, s);
    const float logprob = row.logprob(state.target[s]);
    results.logprob[s] = logprob;
    results.greedy[s] = isfinite(logprob) && state.best_id[s] == targets[s] ? 1 : 0;
    if (state.weighted != nullptr) {
        results.entropy[s] = static_cast<float>(row.log_sum - state.weighted[s] / state.sum[s]);
    }
}

// One block puts one row's top tokens in order: each goes where as many as are before it say.
__global__ void __launch_bounds__(begin_threads) head_end_top_kernel(State state, Results results) {
    const Elements s = blockIdx.x;
    const Normalizer row(state, s);
    const TopToken* top = state.top + s * state.k;
    for (Elements i = threadIdx.x; i < state.k; i += begin_threads) {
        const TopToken mine = top[i];
        Elements rank = 0;
        for (Elements j = 0; j < state.k; ++j) {
            const TopToken other = top[j];
            const bool empty_too = other.id == mine.id; // of ids, only "none" is there twice
            rank += before(other, mine) || (empty_too && j < i) ? 1 : 0;
        }
        const float logprob = row.logprob(mine.logit);
        const bool none = isnan(logprob) || mine.id == no_id;
        results.top_tokens[s * state.k + rank] = none ? -1 : mine.id;
        results.top_logprobs[s * state.k + rank] = none ? not_a_number() : logprob;
    }
}

} // namespace

void CudaKernels::do_head_end(HeadState state, Ids targets, HeadResults results, Stream& stream) {
    const auto rows = static_cast<Elements>(targets.size());
    const State from = state_from(state, 0);
    const Results to{results.logprob.data(), results.greedy.data(), results.entropy.data(),
                     results.top_tokens.data(), results.top_logprobs.data()};
    const auto of_rows = [](auto view) { return reads(view.data(), std::ssize(view)); };
    launch("head_end", head_end_kernel, {blocks_of(rows, begin_threads), begin_threads},
           {{of_rows(state.maximum), of_rows(state.sum), of_rows(state.target),
             of_rows(state.best_id), of_rows(state.weighted), reads(targets),
             writes(results.logprob), writes(results.greedy), writes(results.entropy)}},
           stream, from, targets.data(), to, rows);
    if (from.k > 0) {
        launch("head_end_top", head_end_top_kernel, {static_cast<unsigned>(rows), begin_threads},
               {{of_rows(state.maximum), of_rows(state.sum), of_rows(state.top),
                 writes(results.top_tokens), writes(results.top_logprobs)}},
               stream, from, to);
    }
}

} // namespace foregather::kernels
