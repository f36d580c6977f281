// SPDX-License-Identifier: Apache-2.0
// Gradients of the kernels that move or change rows one by one: embedding, RoPE, the gate, rows
// taken out; and rounding.
#include "training.hpp"

#include <foregather/base/error.hpp>

namespace foregather::kernels {
namespace {

constexpr Elements rows_at_a_time = 64;
constexpr Elements columns_at_a_time = 64;
constexpr Elements entries_at_a_time = 16384;
constexpr Elements entries_rounded = 1024;

} // namespace

void HostTraining::do_convert(ConstFloats x, Slab y, Stream& stream) {
    require_computable(y, "convert");
    enqueue_rows(stream, y.n, entries_at_a_time, [=, this](Elements begin, Elements end, int) {
        if (y.type == base::DType::f32) {
            std::copy(x.data() + begin, x.data() + end, y.f32() + begin);
        } else {
            lanes_.to_bf16(x.data() + begin, y.bf16() + begin, end - begin);
        }
    });
}

void HostTraining::do_rope_backward(Floats dx, Ids positions, ConstFloats cosines,
                                    ConstFloats sines, int heads, int head_dim, Stream& stream) {
    const Elements half = head_dim / 2;
    const Elements known = static_cast<Elements>(cosines.size()) / half;
    const auto tokens = static_cast<Elements>(positions.size());
    enqueue_rows(stream, tokens, rows_at_a_time, [=, this](Elements begin, Elements end, int) {
        for (Elements t = begin; t < end; ++t) {
            const Elements position = positions[static_cast<std::size_t>(t)];
            if (position < 0 || position >= known) {
                base::fail("rope_backward: token " + std::to_string(t) + " has position " +
                           std::to_string(position) + ", the tables have " + std::to_string(known));
            }
            for (Elements h = 0; h < heads; ++h) {
                lanes_.rotate_back(dx.data() + (t * heads + h) * head_dim,
                                   cosines.data() + position * half, sines.data() + position * half,
                                   half);
            }
        }
    });
}

void HostTraining::do_silu_gate_backward(ConstFloats gate, ConstFloats up, ConstFloats dout,
                                         Slab dgate, Slab dup, Stream& stream) {
    require_computable(dgate, "silu_gate_backward");
    const auto backward = [=, this](Elements first, Elements n, float* to_gate, float* to_up) {
        lanes_.silu_gate_backward(gate.data() + first, up.data() + first, dout.data() + first,
                                  to_gate, to_up, n);
    };
    enqueue_rows(stream, dgate.n, entries_at_a_time,
                 [=, this](Elements begin, Elements end, int thread) {
                     if (dgate.type == base::DType::f32) {
                         backward(begin, end - begin, dgate.f32() + begin, dup.f32() + begin);
                         return;
                     }
                     float* wide = scratch_of(thread);
                     for (Elements first = begin; first < end; first += entries_rounded) {
                         const Elements n = std::min(entries_rounded, end - first);
                         backward(first, n, wide, wide + entries_rounded);
                         lanes_.to_bf16(wide, dgate.bf16() + first, n);
                         lanes_.to_bf16(wide + entries_rounded, dup.bf16() + first, n);
                     }
                 });
}

// By columns, so that the tokens of each entry are added in their order by one thread.
void HostTraining::do_embed_backward(Ids ids, Elements first_row, ConstFloats dx, Into into,
                                     Floats dw, Elements width, Stream& stream) {
    const Elements rows = static_cast<Elements>(dw.size()) / width;
    if (into == Into::overwrite) {
        clear(dw, stream);
    }
    enqueue_rows(stream, width, columns_at_a_time, [=, this](Elements begin, Elements end, int) {
        for (std::size_t t = 0; t < ids.size(); ++t) {
            const Elements row = ids[t] - first_row;
            if (row >= 0 && row < rows) {
                lanes_.add_scaled(dx.data() + static_cast<Elements>(t) * width + begin, 1.0F,
                                  dw.data() + row * width + begin, end - begin);
            }
        }
    });
}

void HostTraining::do_take_rows_backward(ConstFloats dy, Ids rows, Floats dx, Elements width,
                                         Stream& stream) {
    const auto taken = static_cast<Elements>(rows.size());
    const Elements known = static_cast<Elements>(dx.size()) / width;
    enqueue_rows(stream, taken, rows_at_a_time, [=, this](Elements begin, Elements end, int) {
        for (Elements s = begin; s < end; ++s) {
            const Elements row = rows[static_cast<std::size_t>(s)];
            if (row < 0 || row >= known) {
                base::fail("take_rows_backward: entry " + std::to_string(s) + " names row " +
                           std::to_string(row) + " of " + std::to_string(known));
            }
            lanes_.add_scaled(dy.data() + s * width, 1.0F, dx.data() + row * width, width);
        }
    });
}

} // namespace foregather::kernels
