// SPDX-License-Identifier: Apache-2.0
// How calls of kernels check their shapes: named extents and the message if they do not fit. Which
// shapes fit is decided by each call.
#pragma once

#include <initializer_list>
#include <string>

#include <foregather/base/error.hpp>
#include <foregather/kernels/kernels.hpp>

namespace foregather::kernels {

struct Extent {
    const char* name;
    Elements n;
};

template <class T>
Extent extent(const char* name, View<T> view) {
    return {name, static_cast<Elements>(view.size())};
}
inline Extent extent(const char* name, const ConstSlab& slab) { return {name, slab.n}; }

inline void require(bool fits, const char* kernel, std::initializer_list<Extent> extents) {
    if (fits) {
        return;
    }
    std::string text = std::string(kernel) + ": shapes do not fit together:";
    for (const Extent& e : extents) {
        text += std::string(" ") + e.name + " " + std::to_string(e.n);
    }
    base::fail(text);
}

inline bool cut_evenly(Elements n, Elements part) { return part > 0 && n % part == 0; }

// Which types a product takes, its kernel decides; it never takes two.
inline void require_same_type(const char* kernel, const ConstSlab& x, const ConstSlab& w,
                              const char* x_name = "x", const char* w_name = "w") {
    if (x.n > 0 && x.type != w.type) {
        base::fail(std::string(kernel) + ": " + x_name + " is " + base::name_of(x.type) + ", " +
                   w_name + " is " + base::name_of(w.type) + "; a product takes one type");
    }
}

// Do tables and tokens of a rotation fit?
inline bool turns(ConstFloats x, Ids positions, ConstFloats cosines, ConstFloats sines, int heads,
                  int head_dim) {
    return heads > 0 && head_dim > 0 && head_dim % 2 == 0 && cosines.size() == sines.size() &&
           cut_evenly(extent("cosines", cosines).n, head_dim / 2) &&
           extent("x", x).n == extent("positions", positions).n * heads * head_dim;
}

// Do queries, keys and values fit?
inline bool attends(ConstFloats q, ConstFloats k, ConstFloats v, Ids offsets,
                    const AttentionShape& shape) {
    const Elements row = Elements{shape.heads} * shape.head_dim;
    const Elements kv_row = Elements{shape.kv_heads} * shape.head_dim;
    const Elements q_n = extent("q", q).n;
    return cut_evenly(shape.heads, shape.kv_heads) && cut_evenly(q_n, row) &&
           extent("k", k).n == q_n / row * kv_row && v.size() == k.size() && !offsets.empty() &&
           shape.window >= 0;
}

inline bool holds(const HeadState& state, std::size_t scored) {
    return state.maximum.size() == scored && state.sum.size() == scored &&
           state.target.size() == scored && state.best_id.size() == scored &&
           (state.weighted.empty() || state.weighted.size() == scored) &&
           (state.top.empty() || (scored > 0 && state.top.size() % scored == 0)) &&
           (state.logits.empty() || (scored > 0 && state.logits.size() % scored == 0));
}

} // namespace foregather::kernels
