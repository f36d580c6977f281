// SPDX-License-Identifier: Apache-2.0
// The CUDA device's TrainingKernels: what each enqueues. Blocks follow from shapes alone and sums
// run in a fixed order, as in cuda.hpp; where blocks share a sum, its parts lie where logits do and
// are added in order. Offsets, positions and rows that are wrong poison what forward made of them,
// and so the loss: gradients of such rows are NaN too, or none.
#pragma once

#include <string>

#include <foregather/base/error.hpp>
#include <foregather/kernels/training.hpp>

#include "cuda.hpp"

namespace foregather::kernels {

class CudaTraining final : public TrainingKernels {
public:
    // Multiplies with the products of `kernels`, and works on their scratch; they must outlive it.
    explicit CudaTraining(CudaKernels& kernels) : kernels_(kernels) {}

private:
    void do_convert(ConstFloats x, Slab y, Stream& stream) override;
    void do_product_input_gradient(ConstSlab dy, ConstSlab w, Into into, Floats dx, Elements tokens,
                                   Stream& stream) override;
    void do_product_weight_gradient(ConstSlab dy, ConstSlab x, Into into, Floats dw, Floats dbias,
                                    Elements tokens, Stream& stream) override;
    void do_rms_norm_backward(ConstFloats x, ConstSlab w, float epsilon, ConstFloats dy,
                              Into into_dx, Floats dx, Into into_dw, Floats dw,
                              Stream& stream) override;
    void do_rope_backward(Floats dx, Ids positions, ConstFloats cosines, ConstFloats sines,
                          int heads, int head_dim, Stream& stream) override;
    void do_attention_backward(ConstFloats q, ConstFloats k, ConstFloats v, ConstSlab out,
                               ConstFloats lse, Floats dout, Ids offsets, AttentionShape shape,
                               Floats dq, Floats dk, Floats dv, Stream& stream) override;
    void do_silu_gate_backward(ConstFloats gate, ConstFloats up, ConstFloats dout, Slab dgate,
                               Slab dup, Stream& stream) override;
    void do_embed_backward(Ids ids, Elements first_row, ConstFloats dx, Into into, Floats dw,
                           Elements width, Stream& stream) override;
    void do_take_rows_backward(ConstFloats dy, Ids rows, Floats dx, Elements width,
                               Stream& stream) override;
    void do_loss(HeadState state, Ids targets, Into into, View<double> sum,
                 Stream& stream) override;
    void do_head_backward(ConstSlab x, ConstSlab w, Elements first_row, Ids targets,
                          HeadState state, float scale, Into into_dx, Floats dx, Into into_dw,
                          Floats dw, Stream& stream) override;
    void do_adamw(Floats w, ConstFloats g, Floats m, Floats v, const AdamwStep& step, Slab copy,
                  Stream& stream) override;
    void do_sum_of_squares(ConstFloats x, Into into, View<double> sum, Stream& stream) override;
    void do_add(ConstSlab x, Floats accumulator, Stream& stream) override;
    void do_scale(Floats x, float factor, Stream& stream) override;
    void do_clear(Floats x, Stream& stream) override;

    struct HeadPiece; // training_head.cu
    ConstSlab logit_gradients(const HeadPiece& in, Elements s, Elements tokens, Elements row,
                              Elements n, Stream& stream);

    // [T, H] in the scratch; rounds dout where out is bf16.
    ConstFloats attention_means(ConstSlab out, Floats dout, const AttentionShape& shape,
                                Stream& stream);

    // Zeros in the rows of x that a sum over rows, rounded up, reads beyond `rows`.
    void clear_beyond(ConstSlab x, Elements rows, Stream& stream);

    // Scratch: n elements of T from `first` bytes on. Throws Error(failed) if it has not as many.
    template <class T>
    View<T> scratch(const char* kernel, Elements first, Elements n) const;

    CudaKernels& kernels_;
};

inline constexpr Elements training_scratch_bytes = logit_tokens * logit_columns * 4;

template <class T>
View<T> CudaTraining::scratch(const char* kernel, Elements first, Elements n) const {
    const auto bytes = first + n * static_cast<Elements>(sizeof(T));
    if (bytes > training_scratch_bytes) {
        base::fail(std::string(kernel) + ": needs " + std::to_string(bytes) +
                   " bytes of scratch, there are " + std::to_string(training_scratch_bytes));
    }
    auto* memory = reinterpret_cast<std::byte*>(kernels_.logits_.view().data());
    return {reinterpret_cast<T*>(memory + first), static_cast<std::size_t>(n)};
}

} // namespace foregather::kernels
