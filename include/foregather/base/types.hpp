// SPDX-License-Identifier: Apache-2.0
// The words that every room shares: counts, element types, tensor names and shapes.
// It decides no layout: shard/layout.hpp does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace foregather::base {

using Elements = std::int64_t; // a count of elements, never of bytes

// A count of bytes. A type of its own, so that bytes cannot pass for elements.
struct Bytes {
    std::int64_t count = 0;

    friend constexpr auto operator<=>(Bytes, Bytes) = default;
    friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
    friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
    friend constexpr Bytes operator*(std::int64_t n, Bytes b) { return {n * b.count}; }
    constexpr Bytes& operator+=(Bytes b) {
        count += b.count;
        return *this;
    }
};

enum class DType { f32, f16, bf16 };

constexpr std::int64_t size_of(DType type) { return type == DType::f32 ? 4 : 2; }
constexpr const char* name_of(DType type) {
    return type == DType::f32 ? "fp32" : type == DType::f16 ? "fp16" : "bf16";
}
constexpr Bytes bytes_of(Elements n, DType type) { return {n * size_of(type)}; }

using Shape = std::vector<std::int64_t>; // row-major, last extent fastest

inline Elements elements_of(const Shape& shape) {
    Elements n = 1;
    for (const std::int64_t extent : shape) {
        n *= extent;
    }
    return n;
}

// A tensor of the model under its Hugging Face name, e.g. "model.layers.3.mlp.up_proj.weight".
struct TensorSpec {
    std::string name;
    Shape shape;
};

using UnitId = int; // position in the list of units: what is gathered at once

// [begin, end) in elements.
struct Range {
    Elements begin = 0;
    Elements end = 0;

    constexpr Elements size() const { return end - begin; }
    constexpr bool empty() const { return end <= begin; }
    friend constexpr bool operator==(const Range&, const Range&) = default;
};

} // namespace foregather::base
