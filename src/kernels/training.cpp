// SPDX-License-Identifier: Apache-2.0
// Shape checks of the kernels that training adds, once for all kinds of device. Calls that have
// nothing to compute end here, after what they overwrite is cleared.
#include <foregather/kernels/training.hpp>

#include <foregather/base/error.hpp>

#include "shapes.hpp"

namespace foregather::kernels {

void TrainingKernels::convert(ConstFloats x, Slab y, Stream& stream) {
    require(y.n == extent("x", x).n, "convert", {extent("x", x), extent("y", y)});
    if (!x.empty()) {
        do_convert(x, y, stream);
    }
}

void TrainingKernels::product_input_gradient(ConstSlab dy, ConstSlab w, Into into, Floats dx,
                                             Elements tokens, Stream& stream) {
    const Elements dy_n = dy.n, dx_n = extent("dx", dx).n;
    const bool rows_fit = tokens == 0 ? dy_n == 0 && dx_n == 0
                                      : cut_evenly(dy_n, tokens) && cut_evenly(dx_n, tokens) &&
                                            w.n == (dy_n / tokens) * (dx_n / tokens);
    require(tokens >= 0 && rows_fit, "product_input_gradient",
            {{"dy", dy_n}, {"w", w.n}, {"dx", dx_n}, {"tokens", tokens}});
    require_same_type("product_input_gradient", dy, w, "dy");
    if (tokens > 0) {
        do_product_input_gradient(dy, w, into, dx, tokens, stream);
    }
}

void TrainingKernels::product_weight_gradient(ConstSlab dy, ConstSlab x, Into into, Floats dw,
                                              Floats dbias, Elements tokens, Stream& stream) {
    const Elements dw_n = extent("dw", dw).n, dbias_n = extent("dbias", dbias).n;
    const bool rows_fit =
        tokens == 0 ? dy.n == 0 && x.n == 0 : cut_evenly(dy.n, tokens) && cut_evenly(x.n, tokens);
    require(
        tokens >= 0 && rows_fit &&
            (tokens == 0 || (dw_n == (dy.n / tokens) * (x.n / tokens) &&
                             (dbias_n == 0 || dbias_n == dy.n / tokens))),
        "product_weight_gradient",
        {extent("dy", dy), extent("x", x), {"dw", dw_n}, {"dbias", dbias_n}, {"tokens", tokens}});
    require_same_type("product_weight_gradient", dy, x, "dy", "x");
    if (tokens > 0) {
        do_product_weight_gradient(dy, x, into, dw, dbias, tokens, stream);
    } else if (into == Into::overwrite) {
        clear(dw, stream);
        clear(dbias, stream);
    }
}

void TrainingKernels::rms_norm_backward(ConstFloats x, ConstSlab w, float epsilon, ConstFloats dy,
                                        Into into_dx, Floats dx, Into into_dw, Floats dw,
                                        Stream& stream) {
    require(cut_evenly(extent("x", x).n, w.n) && dy.size() == x.size() && dx.size() == x.size() &&
                extent("dw", dw).n == w.n,
            "rms_norm_backward",
            {extent("x", x), extent("w", w), extent("dy", dy), extent("dx", dx), extent("dw", dw)});
    if (!x.empty()) {
        do_rms_norm_backward(x, w, epsilon, dy, into_dx, dx, into_dw, dw, stream);
    } else if (into_dw == Into::overwrite) {
        clear(dw, stream);
    }
}

void TrainingKernels::rope_backward(Floats dx, Ids positions, ConstFloats cosines,
                                    ConstFloats sines, int heads, int head_dim, Stream& stream) {
    require(turns(dx, positions, cosines, sines, heads, head_dim), "rope_backward",
            {extent("dx", dx),
             extent("positions", positions),
             extent("cosines", cosines),
             extent("sines", sines),
             {"heads", heads},
             {"head_dim", head_dim}});
    if (!positions.empty()) {
        do_rope_backward(dx, positions, cosines, sines, heads, head_dim, stream);
    }
}

void TrainingKernels::attention_backward(ConstFloats q, ConstFloats k, ConstFloats v, ConstSlab out,
                                         ConstFloats lse, Floats dout, Ids offsets,
                                         AttentionShape shape, Floats dq, Floats dk, Floats dv,
                                         Stream& stream) {
    require(attends(q, k, v, offsets, shape) && out.n == extent("q", q).n &&
                extent("lse", lse).n * shape.head_dim == out.n && dout.size() == q.size() &&
                dq.size() == q.size() && dk.size() == k.size() && dv.size() == k.size(),
            "attention_backward",
            {extent("q", q),
             extent("k", k),
             extent("v", v),
             extent("out", out),
             extent("lse", lse),
             extent("dout", dout),
             extent("offsets", offsets),
             extent("dq", dq),
             extent("dk", dk),
             extent("dv", dv),
             {"heads", shape.heads},
             {"kv_heads", shape.kv_heads},
             {"head_dim", shape.head_dim},
             {"window", shape.window}});
    if (!q.empty()) {
        do_attention_backward(q, k, v, out, lse, dout, offsets, shape, dq, dk, dv, stream);
    }
}

void TrainingKernels::silu_gate_backward(ConstFloats gate, ConstFloats up, ConstFloats dout,
                                         Slab dgate, Slab dup, Stream& stream) {
    require(up.size() == gate.size() && dout.size() == gate.size() &&
                dgate.n == extent("gate", gate).n && dup.n == dgate.n,
            "silu_gate_backward",
            {extent("gate", gate), extent("up", up), extent("dout", dout), extent("dgate", dgate),
             extent("dup", dup)});
    require_same_type("silu_gate_backward", dgate, dup, "dgate", "dup");
    if (!gate.empty()) {
        do_silu_gate_backward(gate, up, dout, dgate, dup, stream);
    }
}

void TrainingKernels::embed_backward(Ids ids, Elements first_row, ConstFloats dx, Into into,
                                     Floats dw, Elements width, Stream& stream) {
    require(cut_evenly(extent("dw", dw).n, width) && first_row >= 0 &&
                extent("dx", dx).n == extent("ids", ids).n * width,
            "embed_backward",
            {extent("ids", ids),
             {"first_row", first_row},
             extent("dx", dx),
             extent("dw", dw),
             {"width", width}});
    if (!ids.empty()) {
        do_embed_backward(ids, first_row, dx, into, dw, width, stream);
    } else if (into == Into::overwrite) {
        clear(dw, stream);
    }
}

void TrainingKernels::take_rows_backward(ConstFloats dy, Ids rows, Floats dx, Elements width,
                                         Stream& stream) {
    require(cut_evenly(extent("dx", dx).n, width) &&
                extent("dy", dy).n == extent("rows", rows).n * width,
            "take_rows_backward",
            {extent("dy", dy), extent("rows", rows), extent("dx", dx), {"width", width}});
    if (!rows.empty()) {
        do_take_rows_backward(dy, rows, dx, width, stream);
    }
}

void TrainingKernels::loss(HeadState state, Ids targets, Into into, View<double> sum,
                           Stream& stream) {
    require(holds(state, targets.size()) && sum.size() == 1, "loss",
            {extent("targets", targets), extent("maximum", state.maximum),
             extent("sum of the state", state.sum), extent("target", state.target),
             extent("sum", sum)});
    do_loss(state, targets, into, sum, stream); // also without rows: a sum that is set to 0
}

void TrainingKernels::head_backward(ConstSlab x, ConstSlab w, Elements first_row, Ids targets,
                                    HeadState state, float scale, Into into_dx, Floats dx,
                                    Into into_dw, Floats dw, Stream& stream) {
    const auto scored = static_cast<Elements>(targets.size());
    const bool rows_fit =
        scored == 0 ? x.n == 0 : cut_evenly(x.n, scored) && cut_evenly(w.n, x.n / scored);
    require(rows_fit && first_row >= 0 && holds(state, targets.size()) &&
                extent("dx", dx).n == x.n && extent("dw", dw).n == w.n,
            "head_backward",
            {extent("x", x),
             extent("w", w),
             {"first_row", first_row},
             extent("targets", targets),
             extent("maximum", state.maximum),
             extent("dx", dx),
             extent("dw", dw)});
    require_same_type("head_backward", x, w);
    if (scored > 0) {
        do_head_backward(x, w, first_row, targets, state, scale, into_dx, dx, into_dw, dw, stream);
    } else if (into_dw == Into::overwrite) {
        clear(dw, stream);
    }
}

void TrainingKernels::adamw(Floats w, ConstFloats g, Floats m, Floats v, const AdamwStep& step,
                            Slab copy, Stream& stream) {
    require(g.size() == w.size() && m.size() == w.size() && v.size() == w.size() &&
                (copy.n == 0 || copy.n == extent("w", w).n),
            "adamw",
            {extent("w", w), extent("g", g), extent("m", m), extent("v", v), extent("copy", copy)});
    if (step.step < 1) {
        base::fail("adamw: step " + std::to_string(step.step) + ", the first is 1");
    }
    if (!w.empty()) {
        do_adamw(w, g, m, v, step, copy, stream);
    }
}

void TrainingKernels::sum_of_squares(ConstFloats x, Into into, View<double> sum, Stream& stream) {
    require(sum.size() == 1, "sum_of_squares", {extent("x", x), extent("sum", sum)});
    do_sum_of_squares(x, into, sum, stream);
}

void TrainingKernels::add(ConstSlab x, Floats accumulator, Stream& stream) {
    require(extent("accumulator", accumulator).n == x.n, "add",
            {extent("x", x), extent("accumulator", accumulator)});
    if (x.n > 0) {
        do_add(x, accumulator, stream);
    }
}

void TrainingKernels::scale(Floats x, float factor, Stream& stream) {
    if (!x.empty()) {
        do_scale(x, factor, stream);
    }
}

void TrainingKernels::clear(Floats x, Stream& stream) {
    if (!x.empty()) {
        do_clear(x, stream);
    }
}

} // namespace foregather::kernels
