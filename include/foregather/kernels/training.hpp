// SPDX-License-Identifier: Apache-2.0
// What training adds to the transformer's maths, by the rules of kernels.hpp: a call checks shapes,
// enqueues and returns; nothing allocates, synchronizes or communicates; bits depend on shapes
// alone. Gradients are fp32 and called d<name>; "(+)=" is set or add, by Into. Shapes as there.
#pragma once

#include <foregather/kernels/kernels.hpp>

namespace foregather::kernels {

// One step of AdamW as PyTorch's: the decoupled decay first, then the step along the moments
// corrected for their start at 0 (arXiv:1711.05101, algorithm 2 with eps outside the root).
struct AdamwStep {
    double learning_rate = 0;
    double beta1 = 0.9, beta2 = 0.95; // in [0, 1)
    double epsilon = 1e-8;
    double weight_decay = 0;   // 0 for tensors that do not decay
    std::int64_t step = 1;     // this one's number; the first is 1
    double gradient_scale = 1; // what each gradient is multiplied by: clipping
};

class TrainingKernels {
public:
    virtual ~TrainingKernels() = default;

    // y[i] = x[i] rounded to y's type: activations' gradients on their way into products, and
    // gradients on their way into a reduce in bf16.
    void convert(ConstFloats x, Slab y, Stream& stream);

    // dx (+)= dy w. dy [T, out] of w's type: with bf16 weights it is rounded before, once for this
    // and the weights' product, by convert() or by the kernel that made it. w [out, in],
    // dx [T, in]. Kernels::row_multiple() holds for dy and dx.
    void product_input_gradient(ConstSlab dy, ConstSlab w, Into into, Floats dx, Elements tokens,
                                Stream& stream);
    // dw (+)= dy^T x, dbias (+)= the sum of dy's rows. dy [T, out], x [T, in] of dy's type,
    // dw [out, in], dbias [out] or empty. Sums go over `tokens` rows, whatever lies beyond;
    // Kernels::row_multiple() holds for dy and x. Without tokens overwriting leaves zeros.
    void product_weight_gradient(ConstSlab dy, ConstSlab x, Into into, Floats dw, Floats dbias,
                                 Elements tokens, Stream& stream);

    // Of rms_norm(x, w, epsilon): dx (+)= its part of dy, dw (+)= the sum of its rows'. x, dy, dx
    // [rows, width], w [width], dw [width]. dx may be dy if it is overwritten. A head's norm is one
    // with T x H rows of D. Without rows overwriting leaves zeros.
    void rms_norm_backward(ConstFloats x, ConstSlab w, float epsilon, ConstFloats dy, Into into_dx,
                           Floats dx, Into into_dw, Floats dw, Stream& stream);

    // Turns dx [T, heads, D] back in place by the angle that rope() turned x.
    void rope_backward(Floats dx, Ids positions, ConstFloats cosines, ConstFloats sines, int heads,
                       int head_dim, Stream& stream);

    // Of attention() with the log-sum-exp kept: dq, dk and dv are overwritten. q, k, v as
    // attention() left them, with `out` of the same type; out and lse are what it gave. dout
    // [T, H, D] is fp32; with a bf16 `out` it is rounded where it lies (afterwards it is
    // undefined), as are the weights and their gradients that go into products. No array may be
    // another. dk and dv of a kv head are summed over its query heads in order. Weights are
    // computed again by blocks: no T x T array is formed.
    void attention_backward(ConstFloats q, ConstFloats k, ConstFloats v, ConstSlab out,
                            ConstFloats lse, Floats dout, Ids offsets, AttentionShape shape,
                            Floats dq, Floats dk, Floats dv, Stream& stream);

    // Of silu_gate(). gate, up, dout [T, F]; dgate and dup, of one type, are rounded to it. Where
    // they are fp32 each may be one of the inputs.
    void silu_gate_backward(ConstFloats gate, ConstFloats up, ConstFloats dout, Slab dgate,
                            Slab dup, Stream& stream);

    // Of embed(): dw[row] (+)= the sum of dx[t] over the tokens with that id, in their order. ids
    // [T], dx [T, C], dw [R, C]. Rows without tokens become zero when overwriting.
    void embed_backward(Ids ids, Elements first_row, ConstFloats dx, Into into, Floats dw,
                        Elements width, Stream& stream);

    // Of take_rows(): dx[rows[s]] += dy[s]. Rows are distinct. dx [T, C], rows [S], dy [S, C].
    void take_rows_backward(ConstFloats dy, Ids rows, Floats dx, Elements width, Stream& stream);

    // sum[0] (+)= the sum of -logprob over the rows whose target is not -1, in double and in row
    // order; a NaN as soon as one is. `state` is complete: every piece is in it.
    void loss(HeadState state, Ids targets, Into into, View<double> sum, Stream& stream);

    // Of one piece of the head, `scale` being what the loss changes by when all -logprob rise by 1
    // each, over their number: dlogits = scale * (softmax - [target]), 0 in rows whose target is
    // -1, formed for some rows and columns at a time and rounded to w's type. dx (+)= dlogits w, dw
    // (+)= dlogits^T x. x [S, C], w [R, C] of x's type, of vocabulary rows first_row.., `state`
    // complete, dx [S, C], dw [R, C]. Kernels::row_multiple() holds for x and dx. Without rows
    // overwriting leaves zeros in dw.
    void head_backward(ConstSlab x, ConstSlab w, Elements first_row, Ids targets, HeadState state,
                       float scale, Into into_dx, Floats dx, Into into_dw, Floats dw,
                       Stream& stream);

    // One step of a shard: w, m, v [n] in place, by its gradient g [n]. copy, if it is not empty,
    // becomes w rounded to its type. Throws Error(failed) for a step below 1.
    void adamw(Floats w, ConstFloats g, Floats m, Floats v, const AdamwStep& step, Slab copy,
               Stream& stream);

    // sum[0] (+)= the sum of x[i]^2 in double, by blocks that follow from x's size.
    void sum_of_squares(ConstFloats x, Into into, View<double> sum, Stream& stream);
    // accumulator[i] += x[i]; x of fp32 or bf16. This and convert() need no scratch: they may run
    // on a stream beside the one of all other kernels.
    void add(ConstSlab x, Floats accumulator, Stream& stream);
    // x[i] *= factor.
    void scale(Floats x, float factor, Stream& stream);
    // x[i] = 0.
    void clear(Floats x, Stream& stream);

private:
    virtual void do_convert(ConstFloats x, Slab y, Stream&) = 0;
    virtual void do_product_input_gradient(ConstSlab dy, ConstSlab w, Into, Floats dx,
                                           Elements tokens, Stream&) = 0;
    virtual void do_product_weight_gradient(ConstSlab dy, ConstSlab x, Into, Floats dw,
                                            Floats dbias, Elements tokens, Stream&) = 0;
    virtual void do_rms_norm_backward(ConstFloats x, ConstSlab w, float epsilon, ConstFloats dy,
                                      Into into_dx, Floats dx, Into into_dw, Floats dw,
                                      Stream&) = 0;
    virtual void do_rope_backward(Floats dx, Ids positions, ConstFloats cosines, ConstFloats sines,
                                  int heads, int head_dim, Stream&) = 0;
    virtual void do_attention_backward(ConstFloats q, ConstFloats k, ConstFloats v, ConstSlab out,
                                       ConstFloats lse, Floats dout, Ids offsets, AttentionShape,
                                       Floats dq, Floats dk, Floats dv, Stream&) = 0;
    virtual void do_silu_gate_backward(ConstFloats gate, ConstFloats up, ConstFloats dout,
                                       Slab dgate, Slab dup, Stream&) = 0;
    virtual void do_embed_backward(Ids ids, Elements first_row, ConstFloats dx, Into, Floats dw,
                                   Elements width, Stream&) = 0;
    virtual void do_take_rows_backward(ConstFloats dy, Ids rows, Floats dx, Elements width,
                                       Stream&) = 0;
    virtual void do_loss(HeadState, Ids targets, Into, View<double> sum, Stream&) = 0;
    virtual void do_head_backward(ConstSlab x, ConstSlab w, Elements first_row, Ids targets,
                                  HeadState, float scale, Into into_dx, Floats dx, Into into_dw,
                                  Floats dw, Stream&) = 0;
    virtual void do_adamw(Floats w, ConstFloats g, Floats m, Floats v, const AdamwStep&, Slab copy,
                          Stream&) = 0;
    virtual void do_sum_of_squares(ConstFloats x, Into, View<double> sum, Stream&) = 0;
    virtual void do_add(ConstSlab x, Floats accumulator, Stream&) = 0;
    virtual void do_scale(Floats x, float factor, Stream&) = 0;
    virtual void do_clear(Floats x, Stream&) = 0;
};

} // namespace foregather::kernels
