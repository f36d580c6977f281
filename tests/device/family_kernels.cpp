// SPDX-License-Identifier: Apache-2.0
// Counts operations and bytes from shapes, and leaves the work to the kernels behind.
#include "family_kernels.hpp"

namespace foregather::device_bench {
namespace {

template <class T>
double bytes_of(base::View<T> view) {
    return static_cast<double>(view.size_bytes());
}
double bytes_of(const base::ConstSlab& slab) { return static_cast<double>(slab.bytes().count); }
double bytes_of(const base::Slab& slab) { return static_cast<double>(slab.bytes().count); }

double product_flops(const base::ConstSlab& w, Elements rows) {
    return 2 * static_cast<double>(w.n) * static_cast<double>(rows);
}

} // namespace

template <class Work>
void FamilyKernels::timed(const char* family, double flops, double bytes, Stream& stream,
                          Work work) {
    Call call{family, Stopwatch(bench_.events), flops, bytes};
    call.watch.start(stream);
    work();
    call.watch.stop(stream);
    calls_.push_back(std::move(call));
}

std::map<std::string, Family> FamilyKernels::collect() {
    std::map<std::string, Family> families;
    for (const Call& call : calls_) {
        Family& family = families[call.family];
        ++family.calls;
        family.seconds += call.watch.seconds();
        family.flops += call.flops;
        family.bytes += call.bytes;
    }
    calls_.clear();
    return families;
}

void FamilyKernels::do_embed(Ids ids, Elements first_row, ConstSlab w, Floats x, Elements width,
                             Stream& stream) {
    timed("embed", 0, 2 * bytes_of(x), stream,
          [&] { inner().embed(ids, first_row, w, x, width, stream); });
}

void FamilyKernels::do_rms_norm(ConstFloats x, ConstSlab w, float epsilon, base::Slab y,
                                Stream& stream) {
    timed("norm", 0, bytes_of(x) + bytes_of(y), stream,
          [&] { inner().rms_norm(x, w, epsilon, y, stream); });
}

void FamilyKernels::do_product(ConstSlab x, ConstSlab w, ConstSlab bias, Into into, Floats y,
                               Elements tokens, Stream& stream) {
    const double added = into == Into::add ? bytes_of(y) : 0;
    timed("products", product_flops(w, tokens), bytes_of(x) + bytes_of(w) + bytes_of(y) + added,
          stream, [&] { inner().product(x, w, bias, into, y, tokens, stream); });
}

void FamilyKernels::do_rope(Floats x, Ids positions, ConstFloats cosines, ConstFloats sines,
                            int heads, int head_dim, Stream& stream) {
    timed("rope", 0, 2 * bytes_of(x), stream,
          [&] { inner().rope(x, positions, cosines, sines, heads, head_dim, stream); });
}

// Two products, each of a query with the keys up to its own: on average half of the document.
void FamilyKernels::do_attention(Floats q, Floats k, Floats v, Ids offsets,
                                 kernels::AttentionShape shape, base::Slab out, Floats lse,
                                 Stream& stream) {
    const double keys = static_cast<double>(document_ + 1) / 2;
    timed("attention", 4 * static_cast<double>(q.size()) * keys,
          bytes_of(q) + bytes_of(k) + bytes_of(v) + bytes_of(out), stream,
          [&] { inner().attention(q, k, v, offsets, shape, out, stream, lse); });
}

void FamilyKernels::do_silu_gate(ConstFloats gate, ConstFloats up, base::Slab out, Stream& stream) {
    timed("gate", 0, bytes_of(gate) + bytes_of(up) + bytes_of(out), stream,
          [&] { inner().silu_gate(gate, up, out, stream); });
}

void FamilyKernels::do_take_rows(ConstFloats x, Ids rows, Floats y, Elements width,
                                 Stream& stream) {
    timed("take rows", 0, 2 * bytes_of(y), stream,
          [&] { inner().take_rows(x, rows, y, width, stream); });
}

void FamilyKernels::do_head_begin(kernels::HeadState state, Stream& stream) {
    inner().head_begin(state, stream);
}

void FamilyKernels::do_head_piece(ConstSlab x, ConstSlab w, Elements first_row, Ids targets,
                                  kernels::HeadState state, Stream& stream) {
    timed("head", product_flops(w, static_cast<Elements>(targets.size())),
          bytes_of(x) + bytes_of(w), stream,
          [&] { inner().head_piece(x, w, first_row, targets, state, stream); });
}

void FamilyKernels::do_head_end(kernels::HeadState state, Ids targets, kernels::HeadResults results,
                                Stream& stream) {
    inner().head_end(state, targets, results, stream);
}

} // namespace foregather::device_bench
