// SPDX-License-Identifier: Apache-2.0
// The head: logits of a block of tokens and vocabulary rows at a time, folded into a running
// log-sum-exp. No more than a thread's scratch of logits ever exists.
#include "host.hpp"

#include <cmath>
#include <limits>

namespace foregather::kernels {

void HostKernels::do_head_begin(HeadState state, Stream& stream) {
    checked(stream).enqueue([state] {
        std::fill(state.maximum.begin(), state.maximum.end(),
                  -std::numeric_limits<float>::infinity());
        std::fill(state.sum.begin(), state.sum.end(), 0.0);
        // A target that no piece holds shows as NaN.
        std::fill(state.target.begin(), state.target.end(),
                  std::numeric_limits<float>::quiet_NaN());
        std::fill(state.best_id.begin(), state.best_id.end(),
                  std::numeric_limits<std::int32_t>::max());
    });
}

// Takes the logits of ids first_id .. first_id + n of scored token s into the state. Whatever is
// not finite among them makes the sum NaN: infinity - infinity is one, and exp keeps one.
void HostKernels::fold_logits(const float* logits, Elements n, Elements first_id,
                              std::int32_t target, HeadState state, std::size_t s) const {
    const float top = lanes_.largest(logits, n);
    float& maximum = state.maximum[s];
    if (top >= maximum) {
        const auto id = static_cast<std::int32_t>(first_id + lanes_.find(logits, n, top));
        state.best_id[s] = top > maximum ? id : std::min(id, state.best_id[s]);
    }
    if (top > maximum) {
        // In long double, whose exp and log are the same code on every x86-64 processor.
        state.sum[s] *= static_cast<double>(std::exp(static_cast<long double>(maximum - top)));
        maximum = top;
    }
    state.sum[s] += lanes_.sum_exp_minus(logits, n, maximum);
    if (target >= first_id && target < first_id + n) {
        state.target[s] = logits[target - first_id];
    }
}

void HostKernels::do_head_piece(ConstSlab x, ConstSlab w, Elements first_row, Ids targets,
                                HeadState state, Stream& stream) {
    require_computable(w, "head_piece");
    const auto scored = static_cast<Elements>(targets.size());
    const Elements width = x.n / scored;
    const Elements rows = w.n / width;
    enqueue_rows(stream, scored, product_rows(scored),
                 [=, this](Elements begin, Elements end, int thread) {
                     float* logits = scratch_of(thread);
                     for (Elements row = 0; row < rows; row += head_columns) {
                         const Elements n = std::min(head_columns, rows - row);
                         const ProductSize size{end - begin, n, width};
                         if (w.type == base::DType::f32) {
                             products_.multiply_transposed(
                                 size, 1.0F, Matrix<const float>{x.f32() + begin * width, width},
                                 Matrix<const float>{w.f32() + row * width, width}, 0.0F,
                                 {logits, head_columns});
                         } else {
                             multiply_bf16(size, {x.bf16() + begin * width, width},
                                           {w.bf16() + row * width, width}, 0.0F,
                                           {logits, head_columns}, thread);
                         }
                         for (Elements s = begin; s < end; ++s) {
                             const auto entry = static_cast<std::size_t>(s);
                             fold_logits(logits + (s - begin) * head_columns, n, first_row + row,
                                         targets[entry], state, entry);
                         }
                     }
                 });
}

void HostKernels::do_head_end(HeadState state, Ids targets, Floats logprob,
                              View<std::uint8_t> greedy, Stream& stream) {
    checked(stream).enqueue([=] {
        for (std::size_t s = 0; s < targets.size(); ++s) {
            const auto log_sum = std::log(static_cast<long double>(state.sum[s]));
            const double above =
                static_cast<double>(state.target[s]) - static_cast<double>(state.maximum[s]);
            logprob[s] = static_cast<float>(above - static_cast<double>(log_sum));
            greedy[s] = std::isfinite(logprob[s]) && state.best_id[s] == targets[s] ? 1 : 0;
        }
    });
}

} // namespace foregather::kernels
