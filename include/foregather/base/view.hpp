// SPDX-License-Identifier: Apache-2.0
// Views of memory that somebody else owns: pointer, element count and element type travel together.
// They never allocate and never know on which device the memory is.
#pragma once

#include <cstddef>
#include <span>

#include <foregather/base/types.hpp>

namespace foregather::base {

template <class T>
using View = std::span<T>;

// Read-only memory of n elements of a type known at run time.
struct ConstSlab {
    const std::byte* data = nullptr;
    Elements n = 0;
    DType type = DType::f32;

    Bytes bytes() const { return bytes_of(n, type); }
};

// Memory of n elements of a type known at run time, for calls that are virtual.
struct Slab {
    std::byte* data = nullptr;
    Elements n = 0;
    DType type = DType::f32;

    Bytes bytes() const { return bytes_of(n, type); }
    Slab part(Elements first, Elements count) const {
        return {data + first * size_of(type), count, type};
    }
    // Valid only for DType::f32.
    float* f32() const { return reinterpret_cast<float*>(data); }
    operator ConstSlab() const { return {data, n, type}; }
};

inline Slab slab(View<float> view) {
    return {reinterpret_cast<std::byte*>(view.data()), static_cast<Elements>(view.size()),
            DType::f32};
}
inline ConstSlab slab(View<const float> view) {
    return {reinterpret_cast<const std::byte*>(view.data()), static_cast<Elements>(view.size()),
            DType::f32};
}

} // namespace foregather::base
