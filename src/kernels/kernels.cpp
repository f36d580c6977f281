// SPDX-License-Identifier: Apache-2.0
// Shape checks of every kernel, once for all kinds of device; what passes is handed to do_*().
// Calls without tokens end here.
#include <foregather/kernels/kernels.hpp>

#include <foregather/base/error.hpp>

#include "shapes.hpp"

namespace foregather::kernels {
namespace {

// Results for every row of what the state was asked for, and for nothing else.
bool answers(const HeadResults& results, const HeadState& state, std::size_t scored) {
    return results.logprob.size() == scored && results.greedy.size() == scored &&
           results.entropy.size() == state.weighted.size() &&
           results.top_tokens.size() == state.top.size() &&
           results.top_logprobs.size() == state.top.size();
}

} // namespace

TrainingKernels& Kernels::training() { base::refuse("these kernels score; they cannot train"); }

void Kernels::embed(Ids ids, Elements first_row, ConstSlab w, Floats x, Elements width,
                    Stream& stream) {
    const auto tokens = static_cast<Elements>(ids.size());
    require(cut_evenly(w.n, width) && first_row >= 0 && extent("x", x).n == tokens * width, "embed",
            {extent("ids", ids),
             {"first_row", first_row},
             {"w", w.n},
             extent("x", x),
             {"width", width}});
    if (tokens > 0) {
        do_embed(ids, first_row, w, x, width, stream);
    }
}

void Kernels::rms_norm(ConstFloats x, ConstSlab w, float epsilon, Slab y, Stream& stream) {
    require(cut_evenly(extent("x", x).n, w.n) && y.n == extent("x", x).n, "rms_norm",
            {extent("x", x), {"w", w.n}, extent("y", y)});
    if (!x.empty()) {
        do_rms_norm(x, w, epsilon, y, stream);
    }
}

void Kernels::product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y,
                      Elements tokens, Stream& stream) {
    const Elements x_n = x.n, y_n = extent("y", y).n;
    const bool rows_fit =
        tokens == 0 ? x_n == 0 && y.empty() : cut_evenly(x_n, tokens) && cut_evenly(y_n, tokens);
    const Elements in = tokens > 0 ? x_n / tokens : 0, out = tokens > 0 ? y_n / tokens : 0;
    require(tokens >= 0 && rows_fit &&
                (tokens == 0 || (w.n == in * out && (bias.n == 0 || bias.n == out))),
            "product", {{"x", x_n}, {"w", w.n}, {"bias", bias.n}, {"y", y_n}, {"tokens", tokens}});
    require_same_type("product", x, w);
    if (tokens > 0) {
        do_product(x, w, bias, into, y, tokens, stream);
    }
}

void Kernels::rope(Floats x, Ids positions, ConstFloats cosines, ConstFloats sines, int heads,
                   int head_dim, Stream& stream) {
    require(turns(x, positions, cosines, sines, heads, head_dim), "rope",
            {extent("x", x),
             extent("positions", positions),
             extent("cosines", cosines),
             extent("sines", sines),
             {"heads", heads},
             {"head_dim", head_dim}});
    if (!positions.empty()) {
        do_rope(x, positions, cosines, sines, heads, head_dim, stream);
    }
}

void Kernels::attention(Floats q, Floats k, Floats v, Ids offsets, AttentionShape shape, Slab out,
                        Stream& stream, Floats lse) {
    require(attends(q, k, v, offsets, shape) && out.n == extent("q", q).n &&
                (lse.empty() || extent("lse", lse).n * shape.head_dim == out.n),
            "attention",
            {extent("q", q),
             extent("k", k),
             extent("v", v),
             extent("offsets", offsets),
             extent("out", out),
             extent("lse", lse),
             {"heads", shape.heads},
             {"kv_heads", shape.kv_heads},
             {"head_dim", shape.head_dim},
             {"window", shape.window}});
    if (!q.empty()) {
        do_attention(q, k, v, offsets, shape, out, lse, stream);
    }
}

void Kernels::silu_gate(ConstFloats gate, ConstFloats up, Slab out, Stream& stream) {
    require(gate.size() == up.size() && out.n == extent("gate", gate).n, "silu_gate",
            {extent("gate", gate), extent("up", up), extent("out", out)});
    if (!gate.empty()) {
        do_silu_gate(gate, up, out, stream);
    }
}

void Kernels::take_rows(ConstFloats x, Ids rows, Floats y, Elements width, Stream& stream) {
    require(cut_evenly(extent("x", x).n, width) &&
                extent("y", y).n == extent("rows", rows).n * width,
            "take_rows", {extent("x", x), extent("rows", rows), extent("y", y), {"width", width}});
    if (!rows.empty()) {
        do_take_rows(x, rows, y, width, stream);
    }
}

void Kernels::head_begin(HeadState state, Stream& stream) {
    require(holds(state, state.maximum.size()), "head_begin",
            {extent("maximum", state.maximum), extent("sum", state.sum),
             extent("target", state.target), extent("best_id", state.best_id),
             extent("weighted", state.weighted), extent("top", state.top),
             extent("logits", state.logits)});
    if (!state.maximum.empty()) {
        do_head_begin(state, stream);
    }
}

void Kernels::head_piece(ConstSlab x, ConstSlab w, Elements first_row, Ids targets, HeadState state,
                         Stream& stream) {
    const auto scored = static_cast<Elements>(targets.size());
    const Elements x_n = x.n;
    const bool rows_fit = scored == 0 ? x_n == 0 : cut_evenly(x_n, scored);
    const Elements logits_n = extent("logits", state.logits).n;
    require(rows_fit && (scored == 0 || cut_evenly(w.n, x_n / scored)) && first_row >= 0 &&
                holds(state, targets.size()) &&
                (logits_n == 0 || first_row + w.n / (x_n / scored) <= logits_n / scored),
            "head_piece",
            {{"x", x_n},
             {"w", w.n},
             {"first_row", first_row},
             extent("targets", targets),
             extent("maximum", state.maximum),
             extent("sum", state.sum),
             extent("target", state.target),
             extent("best_id", state.best_id),
             extent("weighted", state.weighted),
             extent("top", state.top),
             {"logits", logits_n}});
    require_same_type("head_piece", x, w);
    if (scored > 0) {
        do_head_piece(x, w, first_row, targets, state, stream);
    }
}

void Kernels::head_end(HeadState state, Ids targets, HeadResults results, Stream& stream) {
    require(holds(state, targets.size()) && answers(results, state, targets.size()), "head_end",
            {extent("targets", targets), extent("maximum", state.maximum),
             extent("logprob", results.logprob), extent("greedy", results.greedy),
             extent("entropy", results.entropy), extent("top_tokens", results.top_tokens),
             extent("top_logprobs", results.top_logprobs)});
    if (!targets.empty()) {
        do_head_end(state, targets, results, stream);
    }
}

} // namespace foregather::kernels
