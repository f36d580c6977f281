// SPDX-License-Identifier: Apache-2.0
// Kernels that move or change rows one by one: embedding, RoPE, the gate, rows taken out.
#include "host.hpp"

#include <foregather/base/error.hpp>

namespace foregather::kernels {
namespace {

constexpr Elements rows_at_a_time = 64;
constexpr Elements gates_at_a_time = 16384;
constexpr Elements gates_rounded = 1024;

} // namespace

void HostKernels::do_embed(Ids ids, Elements first_row, ConstSlab w, Floats x, Elements width,
                           Stream& stream) {
    require_computable(w, "embed");
    const Elements rows = w.n / width;
    const auto tokens = static_cast<Elements>(ids.size());
    enqueue_rows(stream, tokens, rows_at_a_time, [=, this](Elements begin, Elements end, int) {
        for (Elements t = begin; t < end; ++t) {
            const Elements row = ids[static_cast<std::size_t>(t)] - first_row;
            if (row < 0 || row >= rows) {
                continue;
            }
            if (w.type == base::DType::f32) {
                std::copy_n(w.f32() + row * width, width, x.data() + t * width);
            } else {
                lanes_.from_bf16(w.bf16() + row * width, x.data() + t * width, width);
            }
        }
    });
}

void HostKernels::do_rope(Floats x, Ids positions, ConstFloats cosines, ConstFloats sines,
                          int heads, int head_dim, Stream& stream) {
    const Elements half = head_dim / 2;
    const Elements known = static_cast<Elements>(cosines.size()) / half;
    const auto tokens = static_cast<Elements>(positions.size());
    enqueue_rows(stream, tokens, rows_at_a_time, [=, this](Elements begin, Elements end, int) {
        for (Elements t = begin; t < end; ++t) {
            const Elements position = positions[static_cast<std::size_t>(t)];
            if (position < 0 || position >= known) {
                base::fail("rope: token " + std::to_string(t) + " has position " +
                           std::to_string(position) + ", the tables have " + std::to_string(known));
            }
            for (Elements h = 0; h < heads; ++h) {
                lanes_.rotate(x.data() + (t * heads + h) * head_dim,
                              cosines.data() + position * half, sines.data() + position * half,
                              half);
            }
        }
    });
}

void HostKernels::do_silu_gate(ConstFloats gate, ConstFloats up, Slab out, Stream& stream) {
    const auto n = static_cast<Elements>(gate.size());
    enqueue_rows(stream, n, gates_at_a_time, [=, this](Elements begin, Elements end, int thread) {
        if (out.type == base::DType::f32) {
            lanes_.silu_gate(gate.data() + begin, up.data() + begin, out.f32() + begin,
                             end - begin);
            return;
        }
        for (Elements first = begin; first < end; first += gates_rounded) { // in the first cache
            const Elements count = std::min(gates_rounded, end - first);
            float* gated = scratch_of(thread);
            lanes_.silu_gate(gate.data() + first, up.data() + first, gated, count);
            lanes_.to_bf16(gated, out.bf16() + first, count);
        }
    });
}

void HostKernels::do_take_rows(ConstFloats x, Ids rows, Floats y, Elements width, Stream& stream) {
    const auto taken = static_cast<Elements>(rows.size());
    const Elements known = static_cast<Elements>(x.size()) / width;
    enqueue_rows(stream, taken, rows_at_a_time, [=](Elements begin, Elements end, int) {
        for (Elements s = begin; s < end; ++s) {
            const Elements row = rows[static_cast<std::size_t>(s)];
            if (row < 0 || row >= known) {
                base::fail("take_rows: entry " + std::to_string(s) + " names row " +
                           std::to_string(row) + " of " + std::to_string(known));
            }
            std::copy_n(x.data() + row * width, width, y.data() + s * width);
        }
    });
}

} // namespace foregather::kernels
