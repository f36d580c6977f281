// SPDX-License-Identifier: Apache-2.0
// Additions in blocks of constant length, which g++ -O2 turns into vector code.
#include "sum.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <foregather/io/convert.hpp>

namespace foregather::comm {
namespace {

constexpr base::Elements block = 64;

// sum[i] += term[i]; they do not overlap.
void add_to(float* sum, const float* term, base::Elements n) {
    std::array<float, block> a{};
    std::array<float, block> b{};
    for (base::Elements first = 0; first < n; first += block) {
        const auto bytes = static_cast<std::size_t>(std::min(block, n - first)) * sizeof(float);
        std::memcpy(a.data(), sum + first, bytes);
        std::memcpy(b.data(), term + first, bytes);
        for (std::size_t i = 0; i < a.size(); ++i) {
            a[i] += b[i];
        }
        std::memcpy(sum + first, a.data(), bytes);
    }
}

} // namespace

Sum::Sum(base::Elements most)
    : sum_(std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(most))),
      term_(std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(most))) {}

void Sum::add(base::ConstSlab part) {
    if (terms_++ == 0) {
        io::to_f32(part.type, part.data, part.n, sum_.get());
    } else if (part.type == base::DType::f32) {
        add_to(sum_.get(), part.f32(), part.n);
    } else {
        io::to_f32(part.type, part.data, part.n, term_.get());
        add_to(sum_.get(), term_.get(), part.n);
    }
}

void Sum::store(base::Slab result) const {
    if (result.type == base::DType::f32) {
        std::memcpy(result.data, sum_.get(), static_cast<std::size_t>(result.bytes().count));
    } else {
        io::f32_to_bf16(sum_.get(), result.n, result.bf16());
    }
}

} // namespace foregather::comm
