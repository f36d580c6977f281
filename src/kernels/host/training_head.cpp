// SPDX-License-Identifier: Apache-2.0
// Gradients of the head, from logits that are multiplied out once more, a panel of tokens and
// vocabulary rows at a time. A panel lies in the first thread's scratch, whatever the threads.
#include "training.hpp"

#include <cmath>

namespace foregather::kernels {
namespace {

// A panel is [panel_rows, head_columns], made in tiles of [product_rows, tile_columns]: a tile's
// row is packed over itself when it is rounded to bf16.
constexpr Elements panel_rows = 256;
constexpr Elements tile_columns = 256;
static_assert(panel_rows * head_columns <= block_floats);
static_assert(tile_columns % product_rows == 0 && head_columns % tile_columns == 0);

} // namespace

struct HostTraining::PieceBackward {
    ConstSlab x, w;
    Elements first_row, width;
    Ids targets;
    HeadState state;
    float scale;
    Into into_dx, into_dw;
    Floats dx, dw;
    float* panel;

    // Entry (row, column) of the panel, counted from its own beginning, to the end of its tile.
    Operand gradients(Elements row, Elements column) const {
        const Elements count = panel_rows * head_columns;
        const ConstSlab floats(reinterpret_cast<const std::byte*>(panel), count, base::DType::f32);
        if (x.type == base::DType::f32) {
            return {floats, row * head_columns + column, head_columns};
        }
        const ConstSlab bits(floats.data, 2 * count, base::DType::bf16);
        const Elements inside = column % tile_columns;
        return {bits, 2 * (row * head_columns + column - inside) + inside, 2 * head_columns};
    }
};

// One tile: logits, then scale * (softmax - [target]).
void HostTraining::logit_gradients(const PieceBackward& in, base::Range rows, base::Range columns,
                                   float* tile, int thread) const {
    multiply(Turned::right, {rows.size(), columns.size(), in.width},
             {in.x, rows.begin * in.width, in.width}, {in.w, columns.begin * in.width, in.width},
             0.0F, {tile, head_columns}, thread);
    const float slope = in.scale * in.state.scale;
    for (Elements s = rows.begin; s < rows.end; ++s) {
        const auto entry = static_cast<std::size_t>(s);
        float* row = tile + (s - rows.begin) * head_columns;
        const std::int32_t target = in.targets[entry];
        if (target == -1) {
            std::fill_n(row, columns.size(), 0.0F);
        } else {
            if (in.state.scale != 1.0F) {
                lanes_.scale(row, in.state.scale, columns.size());
            }
            lanes_.exp_minus(row, columns.size(), in.state.maximum[entry] * in.state.scale);
            const double share = static_cast<double>(slope) / in.state.sum[entry];
            lanes_.scale(row, static_cast<float>(share), columns.size());
            const Elements place = target - in.first_row - columns.begin;
            if (place >= 0 && place < columns.size()) {
                row[place] -= slope;
            }
        }
        if (in.x.type == base::DType::bf16) {
            lanes_.to_bf16(row, reinterpret_cast<Bf16*>(row), columns.size());
        }
    }
}

// dx (+)= panel w and dw (+)= panel^T x, both in one round of blocks.
void HostTraining::spread_gradients(const PieceBackward& in, base::Range rows, base::Range columns,
                                    device::HostStream& host) const {
    const Elements width = in.width;
    const Elements across = blocks_of(width, product_columns);
    const Elements dx_blocks = blocks_of(rows.size(), product_rows) * across;
    const Elements dw_blocks = blocks_of(columns.size(), product_rows) * across;
    host.parallel(dx_blocks + dw_blocks, [&](std::int64_t b, int thread) {
        const bool to_dx = b < dx_blocks;
        const Elements block = to_dx ? b : b - dx_blocks;
        const Elements left = block % across * product_columns;
        const Elements top = block / across * product_rows;
        const Elements wide = std::min(product_columns, width - left);
        if (!to_dx) {
            const Elements high = std::min(product_rows, columns.size() - top);
            const bool adds = in.into_dw == Into::add || rows.begin > 0;
            multiply(Turned::left, {high, wide, rows.size()}, in.gradients(0, top),
                     {in.x, rows.begin * width + left, width}, adds ? 1.0F : 0.0F,
                     {in.dw.data() + (columns.begin + top) * width + left, width}, thread);
            return;
        }
        const Elements high = std::min(product_rows, rows.size() - top);
        // fp32 tiles lie side by side: one sum goes through all of them.
        const Elements terms = in.x.type == base::DType::f32 ? head_columns : tile_columns;
        for (Elements k = 0; k < columns.size(); k += terms) {
            const bool adds = in.into_dx == Into::add || columns.begin + k > 0;
            multiply(Turned::none, {high, wide, std::min(terms, columns.size() - k)},
                     in.gradients(top, k), {in.w, (columns.begin + k) * width + left, width},
                     adds ? 1.0F : 0.0F, {in.dx.data() + (rows.begin + top) * width + left, width},
                     thread);
        }
    });
}

void HostTraining::do_head_backward(ConstSlab x, ConstSlab w, Elements first_row, Ids targets,
                                    HeadState state, float scale, Into into_dx, Floats dx,
                                    Into into_dw, Floats dw, Stream& stream) {
    require_computable(w, "head_backward");
    const auto scored = static_cast<Elements>(targets.size());
    const Elements width = x.n / scored;
    const Elements piece = w.n / width;
    const PieceBackward in{x,     w,       first_row, width, targets, state,
                           scale, into_dx, into_dw,   dx,    dw,      scratch_of(0)};
    if (piece == 0 && into_dx == Into::overwrite) {
        clear(dx, stream);
    }
    device::HostStream& host = checked(stream);
    host.enqueue([=, this, &host] {
        for (Elements top = 0; top < scored; top += panel_rows) {
            const base::Range rows{top, std::min(scored, top + panel_rows)};
            for (Elements left = 0; left < piece; left += head_columns) {
                const base::Range columns{left, std::min(piece, left + head_columns)};
                const Elements across = blocks_of(columns.size(), tile_columns);
                const Elements tiles = blocks_of(rows.size(), product_rows) * across;
                host.parallel(tiles, [&](std::int64_t b, int thread) {
                    const Elements row = b / across * product_rows;
                    const Elements column = b % across * tile_columns;
                    logit_gradients(
                        in, {top + row, std::min(rows.end, top + row + product_rows)},
                        {left + column, std::min(columns.end, left + column + tile_columns)},
                        in.panel + row * head_columns + column, thread);
                });
                spread_gradients(in, rows, columns, host);
            }
        }
    });
}

void HostTraining::do_loss(HeadState state, Ids targets, Into into, View<double> sum,
                           Stream& stream) {
    checked(stream).enqueue([=] {
        double total = into == Into::add ? sum[0] : 0.0;
        for (std::size_t s = 0; s < targets.size(); ++s) {
            if (targets[s] == -1) {
                continue;
            }
            const auto log_sum = std::log(static_cast<long double>(state.sum[s]));
            const double below =
                static_cast<double>(state.maximum[s]) - static_cast<double>(state.target[s]);
            total += below * static_cast<double>(state.scale) + static_cast<double>(log_sum);
        }
        sum[0] = total;
    });
}

} // namespace foregather::kernels
