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

    ConstSlab() = default;
    ConstSlab(const std::byte* where, Elements count, DType kind)
        : data(where), n(count), type(kind) {}
    ConstSlab(View<const float> view) // implicit: a view of floats says all that a slab says
        : ConstSlab(reinterpret_cast<const std::byte*>(view.data()),
                    static_cast<Elements>(view.size()), DType::f32) {}
    ConstSlab(View<float> view) : ConstSlab(View<const float>(view)) {}

    // Valid only for DType::f32 and DType::bf16, each.
    const float* f32() const { return reinterpret_cast<const float*>(data); }
    const std::uint16_t* bf16() const { return reinterpret_cast<const std::uint16_t*>(data); }

    Bytes bytes() const { return bytes_of(n, type); }
    ConstSlab part(Elements first, Elements count) const {
        return {data + first * size_of(type), count, type};
    }
};

// Memory of n elements of a type known at run time, for calls that are virtual.
struct Slab {
    std::byte* data = nullptr;
    Elements n = 0;
    DType type = DType::f32;

    Slab() = default;
    Slab(std::byte* where, Elements count, DType kind) : data(where), n(count), type(kind) {}
    Slab(View<float> view)
        : Slab(reinterpret_cast<std::byte*>(view.data()), static_cast<Elements>(view.size()),
               DType::f32) {}

    Bytes bytes() const { return bytes_of(n, type); }
    Slab part(Elements first, Elements count) const {
        return {data + first * size_of(type), count, type};
    }
    // Valid only for DType::f32 and DType::bf16, each.
    float* f32() const { return reinterpret_cast<float*>(data); }
    std::uint16_t* bf16() const { return reinterpret_cast<std::uint16_t*>(data); }
    operator ConstSlab() const { return {data, n, type}; }
};

inline Slab slab(View<float> view) { return view; }
inline ConstSlab slab(View<const float> view) { return view; }

} // namespace foregather::base
