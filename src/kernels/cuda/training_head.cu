// SPDX-License-Identifier: Apache-2.0
// Loss and gradients of the head, from logits that are multiplied out once more, a block of tokens
// and vocabulary rows at a time. Their gradients lie where they did.
#include "training.hpp"

#include <algorithm>

#include "lanes.cuh"
#include "top.cuh"

namespace foregather::kernels {
namespace {

// Of the rows that are worked on.
struct LogitState {
    const float* maximum;
    const double* sum;
    const std::int32_t* targets;
    Elements rows; // those beyond them only round a product up
    float scale;   // of logits
    float slope;   // of the loss and of logits
};

// A block turns one row of logits into gradients, 0 in rows without a target. Where they are
// rounded to bf16 they lie closer than what they are read from.
template <class T>
__global__ void __launch_bounds__(fold_threads, 2)
    logit_gradients_kernel(float* logits, int n, Elements first_id, const LogitState state) {
    const Elements s = blockIdx.x;
    float* from = logits + s * logit_columns;
    const bool scored = s < state.rows && state.targets[s] != -1;
    RowPart row{};
    if (scored) {
        row = load_row(from, n);
        const float maximum = state.maximum[s];
        const auto share = static_cast<float>(static_cast<double>(state.slope) / state.sum[s]);
        const Elements target = state.targets[s] - first_id;
#pragma unroll
        for (int i = 0; i < row_part; ++i) {
            const float weight = expf((row.logit[i] - maximum) * state.scale);
            row.logit[i] = weight * share - (place_of(i) == target ? state.slope : 0.0F);
        }
    }
    __syncthreads(); // what is written from here on may lie where others read
    auto* to = reinterpret_cast<T*>(from);
#pragma unroll
    for (int i = 0; i < row_part; i += 4) {
        if (place_of(i) < n) {
            store<4>(to + place_of(i),
                     Few<4>{{row.logit[i], row.logit[i + 1], row.logit[i + 2], row.logit[i + 3]}});
        }
    }
}

} // namespace

struct CudaTraining::HeadPiece {
    ConstSlab x, w;
    Elements first_row, width;
    Ids targets;
    HeadState state;
    float slope;
    float* logits;
};

// Multiplies `tokens` rows from s on by n rows of the piece and turns the logits into gradients,
// which are returned.
ConstSlab CudaTraining::logit_gradients(const HeadPiece& in, Elements s, Elements tokens,
                                        Elements row, Elements n, Stream& stream) {
    kernels_.multiply({Product::output,
                       in.x.part(s * in.width, tokens * in.width),
                       in.w.part(row * in.width, n * in.width),
                       {},
                       Into::overwrite,
                       in.logits,
                       tokens,
                       in.width,
                       n,
                       logit_columns},
                      stream);
    const Elements whole = round_up(tokens, product_row_multiple);
    const LogitState at{in.state.maximum.data() + s,
                        in.state.sum.data() + s,
                        in.targets.data() + s,
                        tokens,
                        in.state.scale,
                        in.slope};
    const Work work{{writes(in.logits, whole * logit_columns), reads(at.maximum, tokens),
                     reads(at.sum, tokens), reads(at.targets, tokens)},
                    4.0 * static_cast<double>(tokens * n)};
    with_type(in.x.type, [&]<class T>(T) {
        launch("logit_gradients", logit_gradients_kernel<T>,
               {static_cast<unsigned>(whole), fold_threads}, work, stream, in.logits,
               static_cast<int>(n), in.first_row + row, at);
    });
    return {reinterpret_cast<const std::byte*>(in.logits),
            logit_tokens * logit_gradient_stride(in.x.type), in.x.type};
}

void CudaTraining::do_head_backward(ConstSlab x, ConstSlab w, Elements first_row, Ids targets,
                                    HeadState state, float scale, Into into_dx, Floats dx,
                                    Into into_dw, Floats dw, Stream& stream) {
    const auto scored = static_cast<Elements>(targets.size());
    const Elements width = x.n / scored, piece = w.n / width;
    if (piece == 0 && into_dx == Into::overwrite) {
        clear(dx, stream);
    }
    clear_beyond(x, scored, stream);
    const HeadPiece in{x,       w,     first_row,           width,
                       targets, state, scale * state.scale, kernels_.logits_.view().data()};
    const auto multiply = [&](Product product, ConstSlab gradients, ConstSlab by, bool adds,
                              float* result, Elements tokens, Elements n) {
        kernels_.multiply({product,
                           gradients,
                           by,
                           {},
                           adds ? Into::add : Into::overwrite,
                           result,
                           tokens,
                           width,
                           n,
                           logit_gradient_stride(x.type)},
                          stream);
    };
    for (Elements s = 0; s < scored; s += logit_tokens) {
        const Elements tokens = std::min(logit_tokens, scored - s);
        for (Elements row = 0; row < piece; row += logit_columns) {
            const Elements n = std::min(logit_columns, piece - row);
            const ConstSlab gradients = logit_gradients(in, s, tokens, row, n, stream);
            multiply(Product::input_gradient, gradients, w.part(row * width, n * width),
                     into_dx == Into::add || row > 0, dx.data() + s * width, tokens, n);
            multiply(Product::weight_gradient, gradients, x.part(s * width, tokens * width),
                     into_dw == Into::add || s > 0, dw.data() + row * width, tokens, n);
        }
    }
}

namespace {

constexpr int loss_threads = 256;

struct LossShared {
    double terms[loss_threads];
};

// One block: terms are made by all threads and added in the order of rows by one.
__global__ void __launch_bounds__(loss_threads)
    loss_kernel(const LogitState state, const float* target, bool add, double* sum) {
    auto& shared = block_shared<LossShared>();
    double total = add && threadIdx.x == 0 ? sum[0] : 0.0;
    for (Elements first = 0; first < state.rows; first += loss_threads) {
        const Elements s = first + threadIdx.x;
        double term = 0;
        if (s < state.rows && state.targets[s] != -1) {
            const double below =
                static_cast<double>(state.maximum[s]) - static_cast<double>(target[s]);
            term = below * static_cast<double>(state.scale) + log(state.sum[s]);
        }
        shared.terms[threadIdx.x] = term;
        __syncthreads();
        for (int i = 0; threadIdx.x == 0 && i < loss_threads; ++i) {
            total += shared.terms[i];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        sum[0] = total;
    }
}

} // namespace

void CudaTraining::do_loss(HeadState state, Ids targets, Into into, View<double> sum,
                           Stream& stream) {
    const auto rows = static_cast<Elements>(targets.size());
    const LogitState at{
        state.maximum.data(), state.sum.data(), targets.data(), rows, state.scale, 0.0F};
    const auto of_rows = [](auto view) { return reads(view.data(), std::ssize(view)); };
    launch("loss", loss_kernel, {1, loss_threads},
           {{of_rows(state.maximum), of_rows(state.sum), of_rows(state.target), reads(targets),
             writes(sum)},
            4.0 * static_cast<double>(rows)},
           stream, at, static_cast<const float*>(state.target.data()), into == Into::add,
           sum.data());
}

} // namespace foregather::kernels
