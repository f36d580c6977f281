// SPDX-License-Identifier: Apache-2.0
// The transformer's maths as one abstract class: every call checks shapes once, then enqueues on
// the stream and returns. Whoever derives from it writes do_*(), trusts its arguments, and never
// allocates, synchronizes or communicates. Arrays are row-major in the memory of the kernels'
// device and must live until the enqueued work is done. Shapes: T tokens of a pack, S scored
// tokens, C width, H query heads, K kv heads, D head dim, F ffn, R rows of a piece of embedding or
// head.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include <foregather/base/view.hpp>
#include <foregather/device/stream.hpp>

namespace foregather::kernels {

using base::ConstSlab;
using base::Elements;
using base::Slab;
using base::View;
using device::Stream;
using Floats = View<float>;
using ConstFloats = View<const float>;
using Ids = View<const std::int32_t>;

class TrainingKernels; // training.hpp

struct TopToken {
    float logit;
    std::int32_t id;
};

// Running log-sum-exp over the pieces of the head, one entry per row [S], and what else is asked
// for; what is empty is not.
struct HeadState {
    Floats maximum{};             // largest logit so far
    View<double> sum{};           // sum of exp((logit - maximum) / temperature) so far
    Floats target{};              // logit of the token that came
    View<std::int32_t> best_id{}; // id of `maximum`; of equal logits the lower id

    float scale = 1.0F; // 1 / temperature
    // For the entropy: sum of d exp(d) with d = (logit - maximum) / temperature.
    View<double> weighted{};
    View<TopToken> top{}; // [S, k] the k largest logits so far; of equal ones those of lower ids
    Floats logits{};      // [S, V] all of them, before temperature
};

// What comes out, one entry per row [S]; empty where it is not asked for.
struct HeadResults {
    Floats logprob{};
    View<std::uint8_t> greedy{};
    Floats entropy{};                // nat
    View<std::int32_t> top_tokens{}; // [S, k], the most likely first
    Floats top_logprobs{};           // [S, k]
};

struct AttentionShape {
    int heads = 0;       // H
    int kv_heads = 0;    // K, divides H; query head h reads kv head h / (H / K)
    int head_dim = 0;    // D
    Elements window = 0; // keys that a query sees, itself included; 0: all before it
};

enum class Into { overwrite, add };

// What is multiplied of x [T, in], w [out, in] and y [T, out]: y = x w^T, dx = dy w, dw = dy^T x.
enum class Product { output, input_gradient, weight_gradient };

// Products that will be asked for: of up to so many rows.
struct ProductShape {
    Elements most_rows = 0, in = 0, out = 0;
    base::DType type = base::DType::f32; // of both operands
    bool bias = false;                   // an output's; of a gradient's, kernels make no product
    Into into = Into::overwrite;
    // Of head_piece(), or of head_backward(), which sets and adds: `out` are the piece's rows.
    bool logits = false;
    Product product = Product::output;

    friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

class Kernels {
public:
    using Into = kernels::Into;

    virtual ~Kernels() = default;

    // A product may read and overwrite rows of x and y (or of their gradients) beyond those it is
    // asked for, up to a multiple of so many: that memory must be there, what it holds is
    // undefined.
    virtual Elements row_multiple() const { return 1; }
    // The largest head dim that attention takes.
    virtual int widest_head() const { return std::numeric_limits<int>::max(); }
    // Chooses how to multiply these shapes; blocks. Before the first product, once for all of a
    // run; a product of a shape that is not among them may be refused.
    virtual void prepare(View<const ProductShape> /*products*/) {}

    // x[t] = w[ids[t] - first_row] for the tokens whose row is in this piece; others are untouched.
    // ids [T], w [R, C], x [T, C].
    void embed(Ids ids, Elements first_row, ConstSlab w, Floats x, Elements width, Stream& stream);

    // y[t] = x[t] * rsqrt(mean(x[t]^2) + epsilon) * w, rounded to y's type. x, y [T, C] (y may be x
    // if it is fp32), w [C]. A head's norm is one with T x H rows of D.
    void rms_norm(ConstFloats x, ConstSlab w, float epsilon, Slab y, Stream& stream);

    // y = x w^T + bias, or y += x w^T + bias. x [T, in], w [out, in] of x's type, bias [out] of any
    // or empty, y [T, out]. Sums are fp32 at least, whatever the type of x and w.
    void product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y, Elements tokens,
                 Stream& stream);

    // Rotates pairs (j, j + D/2) of each head in place by the angle of its position.
    // x [T, heads, D], positions [T], cosines and sines [positions, D/2].
    void rope(Floats x, Ids positions, ConstFloats cosines, ConstFloats sines, int heads,
              int head_dim, Stream& stream);

    // Causal attention within each document: out[t] = softmax(q[t] k^T / sqrt(D)) v over the
    // document's tokens up to t, shape.window of them at most. q, out [T, H, D], k, v [T, K, D],
    // offsets [documents + 1] into T. No T x T array is formed. With a bf16 `out` the inputs of
    // both products (q, k, v and the weights of the softmax) are rounded to bf16 too:
    // where they lie, so that what q, k and v hold afterwards only attention_backward() can read.
    // lse [T, H], if it is given, becomes the logarithm of the sum of exp(score) of each row.
    void attention(Floats q, Floats k, Floats v, Ids offsets, AttentionShape shape, Slab out,
                   Stream& stream, Floats lse = {});

    // out = silu(gate) * up, rounded to out's type. gate, up, out [T, F]; out may be gate if it is
    // fp32.
    void silu_gate(ConstFloats gate, ConstFloats up, Slab out, Stream& stream);

    // y[s] = x[rows[s]]. x [T, C], rows [S], y [S, C].
    void take_rows(ConstFloats x, Ids rows, Floats y, Elements width, Stream& stream);

    // Empties the state: no logit seen.
    void head_begin(HeadState state, Stream& stream);
    // Logits of this piece's rows, x w^T, go into the state; none are kept unless state.logits asks
    // for them. The sum runs in double, in an order fixed by the shapes. Pieces may come in any
    // order, each once. A logit that is not finite ends as a NaN logprob. x [S, C], w [R, C] of x's
    // type, of vocabulary rows first_row.., targets [S].
    void head_piece(ConstSlab x, ConstSlab w, Elements first_row, Ids targets, HeadState state,
                    Stream& stream);
    // logprob[s] = (target - maximum) / temperature - ln(sum), rounded to float once; NaN if no
    // piece held the target. greedy[s] = (best_id == target id), 0 where logprob is not finite.
    // entropy[s] = ln(sum) - weighted / sum. Where the sum is not a number, neither are these, and
    // top tokens are -1.
    void head_end(HeadState state, Ids targets, HeadResults results, Stream& stream);

    // The kernels that training adds, on the same scratch: of both, one stream at a time. They live
    // as long as these. Throws Error(refused) where a backend has none.
    virtual TrainingKernels& training();

    // The product kernel in use, as recorded in the results: library, version, core type.
    virtual std::string product_name() const = 0;
    // How each shape was multiplied so far, a line each, where products of one shape may be made in
    // several ways; else empty.
    virtual std::string algorithms() const { return ""; }
    // Time spent in products so far, of all threads together; the first product's is among it.
    // Nothing where it is not measured.
    virtual std::optional<double> product_seconds() const = 0;

private:
    virtual void do_embed(Ids, Elements first_row, ConstSlab w, Floats x, Elements width,
                          Stream&) = 0;
    virtual void do_rms_norm(ConstFloats x, ConstSlab w, float epsilon, Slab y, Stream&) = 0;
    virtual void do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into, Floats y,
                            Elements tokens, Stream&) = 0;
    virtual void do_rope(Floats x, Ids positions, ConstFloats cosines, ConstFloats sines, int heads,
                         int head_dim, Stream&) = 0;
    virtual void do_attention(Floats q, Floats k, Floats v, Ids offsets, AttentionShape, Slab out,
                              Floats lse, Stream&) = 0;
    virtual void do_silu_gate(ConstFloats gate, ConstFloats up, Slab out, Stream&) = 0;
    virtual void do_take_rows(ConstFloats x, Ids rows, Floats y, Elements width, Stream&) = 0;
    virtual void do_head_begin(HeadState, Stream&) = 0;
    virtual void do_head_piece(ConstSlab x, ConstSlab w, Elements first_row, Ids targets, HeadState,
                               Stream&) = 0;
    virtual void do_head_end(HeadState, Ids targets, HeadResults, Stream&) = 0;
};

} // namespace foregather::kernels
