// SPDX-License-Identifier: Apache-2.0
// The head: logits of a block of tokens and vocabulary rows at a time, folded into a running
// log-sum-exp and what else is asked for. No more than a thread's scratch of logits ever exists,
// unless they are asked for themselves.
#include "host.hpp"

#include <cmath>
#include <limits>

namespace foregather::kernels {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr std::int32_t no_id = std::numeric_limits<std::int32_t>::max();

// The order of top tokens, total since ids differ: a list does not depend on the order of pieces.
bool before(const TopToken& a, const TopToken& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The entries of row s in an array of so many to a row.
template <class T>
View<T> row_of(View<T> all, std::size_t rows, std::size_t s) {
    const std::size_t n = all.size() / rows;
    return all.subspan(s * n, n);
}

// A heap with the last of the list in front: one comparison tells whether a logit is in it.
void fold_top(View<TopToken> top, const float* logits, Elements n, Elements first_id) {
    for (Elements i = 0; i < n; ++i) {
        const TopToken candidate{logits[i], static_cast<std::int32_t>(first_id + i)};
        if (before(candidate, top.front())) { // a NaN is before nothing
            std::pop_heap(top.begin(), top.end(), before);
            top.back() = candidate;
            std::push_heap(top.begin(), top.end(), before);
        }
    }
}

struct Normalizer {
    double maximum, scale, log_sum;

    double logprob(float logit) const {
        return (static_cast<double>(logit) - maximum) * scale - log_sum;
    }
};

void end_top(View<TopToken> top, const Normalizer& row, View<std::int32_t> tokens,
             Floats logprobs) {
    std::sort_heap(top.begin(), top.end(), before);
    for (std::size_t i = 0; i < top.size(); ++i) {
        logprobs[i] = static_cast<float>(row.logprob(top[i].logit));
        tokens[i] = std::isnan(logprobs[i]) || top[i].id == no_id ? -1 : top[i].id;
        logprobs[i] = tokens[i] < 0 ? not_a_number : logprobs[i];
    }
}

} // namespace

void HostKernels::do_head_begin(HeadState state, Stream& stream) {
    checked(stream).enqueue([state] {
        std::fill(state.maximum.begin(), state.maximum.end(), -infinity);
        std::fill(state.sum.begin(), state.sum.end(), 0.0);
        std::fill(state.weighted.begin(), state.weighted.end(), 0.0);
        // A target that no piece holds shows as NaN.
        std::fill(state.target.begin(), state.target.end(), not_a_number);
        std::fill(state.best_id.begin(), state.best_id.end(), no_id);
        std::fill(state.top.begin(), state.top.end(), TopToken{-infinity, no_id});
    });
}

// Takes the logits of ids first_id .. first_id + n of row s into the state. Whatever is not finite
// among them makes the sum NaN: infinity - infinity is one, and exp keeps one.
void HostKernels::fold_logits(const float* logits, Elements n, Elements first_id,
                              std::int32_t target, const HeadState& state, std::size_t s) const {
    const float top = lanes_.largest(logits, n);
    float& maximum = state.maximum[s];
    if (top >= maximum) {
        const auto id = static_cast<std::int32_t>(first_id + lanes_.find(logits, n, top));
        state.best_id[s] = top > maximum ? id : std::min(id, state.best_id[s]);
    }
    if (top > maximum) {
        // In long double, whose exp and log are the same code on every x86-64 processor.
        const float step = (maximum - top) * state.scale;
        const auto shrink = static_cast<double>(std::exp(static_cast<long double>(step)));
        if (!state.weighted.empty() && state.sum[s] > 0) { // each d falls by the step as well
            state.weighted[s] =
                (state.weighted[s] + static_cast<double>(step) * state.sum[s]) * shrink;
        }
        state.sum[s] *= shrink;
        maximum = top;
    }
    if (state.weighted.empty() && state.scale == 1.0F) {
        state.sum[s] += lanes_.sum_exp_minus(logits, n, maximum);
    } else {
        const Lanes::Sums sums = lanes_.sums_exp_scaled(logits, n, maximum, state.scale);
        state.sum[s] += sums.plain;
        if (!state.weighted.empty()) {
            state.weighted[s] += sums.weighted;
        }
    }
    if (target >= first_id && target < first_id + n) {
        state.target[s] = logits[target - first_id];
    }
    const std::size_t rows = state.maximum.size();
    if (!state.top.empty() && top >= row_of(state.top, rows, s).front().logit) {
        fold_top(row_of(state.top, rows, s), logits, n, first_id);
    }
    if (!state.logits.empty()) {
        std::copy_n(logits, n, row_of(state.logits, rows, s).begin() + first_id);
    }
}

void HostKernels::do_head_piece(ConstSlab x, ConstSlab w, Elements first_row, Ids targets,
                                HeadState state, Stream& stream) {
    require_computable(w, "head_piece");
    const auto scored = static_cast<Elements>(targets.size());
    const Elements width = x.n / scored;
    const Elements rows = w.n / width;
    enqueue_rows(stream, scored, product_rows, [=, this](Elements begin, Elements end, int thread) {
        float* logits = scratch_of(thread);
        for (Elements row = 0; row < rows; row += head_columns) {
            const Elements n = std::min(head_columns, rows - row);
            const ProductSize size{end - begin, n, width};
            multiply(Turned::right, size, {x, begin * width, width}, {w, row * width, width}, 0.0F,
                     {logits, head_columns}, thread);
            for (Elements s = begin; s < end; ++s) {
                const auto entry = static_cast<std::size_t>(s);
                fold_logits(logits + (s - begin) * head_columns, n, first_row + row, targets[entry],
                            state, entry);
            }
        }
    });
}

void HostKernels::do_head_end(HeadState state, Ids targets, HeadResults results, Stream& stream) {
    checked(stream).enqueue([=] {
        const std::size_t rows = targets.size();
        for (std::size_t s = 0; s < rows; ++s) {
            const auto log_sum = std::log(static_cast<long double>(state.sum[s]));
            const Normalizer row{static_cast<double>(state.maximum[s]),
                                 static_cast<double>(state.scale), static_cast<double>(log_sum)};
            results.logprob[s] = static_cast<float>(row.logprob(state.target[s]));
            results.greedy[s] =
                std::isfinite(results.logprob[s]) && state.best_id[s] == targets[s] ? 1 : 0;
            if (!state.weighted.empty()) {
                results.entropy[s] =
                    static_cast<float>(row.log_sum - state.weighted[s] / state.sum[s]);
            }
            if (!state.top.empty()) {
                end_top(row_of(state.top, rows, s), row, row_of(results.top_tokens, rows, s),
                        row_of(results.top_logprobs, rows, s));
            }
        }
    });
}

} // namespace foregather::kernels
