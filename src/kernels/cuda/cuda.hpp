// SPDX-License-Identifier: Apache-2.0
// The CUDA device's Kernels: what each kernel launches, and in which blocks. Blocks follow from
// shapes alone, sums run in a fixed order, no atomics: the same inputs give the same bits. Errors
// in ids that the host's kernels tell by throwing cannot be told from inside a device: rows with a
// bad position or row number, and outputs of attention with bad offsets, become NaN.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <foregather/device/device.hpp>
#include <foregather/kernels/training.hpp>

namespace foregather::kernels {

// Blocks of the head's logits: so many tokens by so many vocabulary rows exist at a time.
inline constexpr Elements logit_tokens = 1024;
inline constexpr Elements logit_columns = 8192;
// Products compute whole multiples of so many rows.
inline constexpr Elements product_row_multiple = 256;
static_assert(logit_tokens % product_row_multiple == 0);

inline constexpr Elements round_up(Elements n, Elements to) { return (n + to - 1) / to * to; }

// The logits' gradients lie where logits did: rounded to bf16 in the first half of each row.
inline constexpr Elements logit_gradient_stride(base::DType type) {
    return type == base::DType::bf16 ? 2 * logit_columns : logit_columns;
}

// The widest head that attention takes.
inline constexpr int widest_head = 256;

class CudaTraining; // training.hpp

class CudaKernels final : public Kernels {
public:
    CudaKernels(device::Device& device, bool tf32);
    ~CudaKernels() override;

    Elements row_multiple() const override { return product_row_multiple; }
    int widest_head() const override; // whose blocks, backward too, fit the GPU's shared memory
    void prepare(View<const ProductShape> products) override;
    TrainingKernels& training() override { return *training_; }
    std::string product_name() const override;
    std::string algorithms() const override;
    std::optional<double> product_seconds() const override { return std::nullopt; }

private:
    friend class CudaTraining; // it multiplies on the same products and works on the same scratch

    void do_embed(Ids ids, Elements first_row, ConstSlab w, Floats x, Elements width,
                  Stream& stream) override;
    void do_rms_norm(ConstFloats x, ConstSlab w, float epsilon, Slab y, Stream& stream) override;
    void do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y, Elements tokens,
                    Stream& stream) override;
    void do_rope(Floats x, Ids positions, ConstFloats cosines, ConstFloats sines, int heads,
                 int head_dim, Stream& stream) override;
    void do_attention(Floats q, Floats k, Floats v, Ids offsets, AttentionShape shape, Slab out,
                      Floats lse, Stream& stream) override;
    void do_silu_gate(ConstFloats gate, ConstFloats up, Slab out, Stream& stream) override;
    void do_take_rows(ConstFloats x, Ids rows, Floats y, Elements width, Stream& stream) override;
    void do_head_begin(HeadState state, Stream& stream) override;
    void do_head_piece(ConstSlab x, ConstSlab w, Elements first_row, Ids targets, HeadState state,
                       Stream& stream) override;
    void do_head_end(HeadState state, Ids targets, HeadResults results, Stream& stream) override;

    // The product of x [rows, in], w [out, in] and y [rows, out] that is named, the result set or
    // added to; row r of y begins at r * y_stride. Rows of x and y up to a multiple of
    // row_multiple() may be read and written; of a weight's gradient they must be zeros.
    struct Multiplied {
        Product product = Product::output;
        ConstSlab left, right, bias; // x and w, dy and w, or dy and x; a bias of an output alone
        Into into = Into::overwrite;
        float* result = nullptr; // y, dx or dw
        Elements rows = 0, in = 0, out = 0, y_stride = 0;
    };
    void multiply(const Multiplied& m, Stream& stream);

    void prepare_logits(const ProductShape& p, Elements rows, Elements width);

    // to = from, of bf16, in fp32.
    void widen(ConstSlab from, Floats to, Stream& stream);

    struct Products; // products.hpp
    std::unique_ptr<Products> products_;
    device::Buffer<float> logits_; // [logit_tokens, logit_columns], and sums' parts of training
    std::unique_ptr<TrainingKernels> training_;
    std::string gpu_; // its name
    bool tf32_;
    std::size_t shared_limit_ = 0; // bytes of shared memory that a block may have
};

} // namespace foregather::kernels
