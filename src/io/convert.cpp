// SPDX-License-Identifier: Apache-2.0
// Conversions written so that g++ -O2 turns them into vector code: blocks of constant length, in
// local arrays that nothing aliases, without branches.
#include <foregather/io/convert.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace foregather::io {

namespace {

constexpr std::size_t block = 64; // elements: a constant length is what -O2 asks for

static_assert(std::endian::native == std::endian::little, "weights are stored little-endian");

constexpr std::uint32_t bits_of_bf16(std::uint32_t h) { return h << 16; }

// All ones where the condition holds: with masks the compiler has no branch to keep.
constexpr std::uint32_t mask(bool condition) { return 0U - std::uint32_t{condition}; }

constexpr std::uint32_t bits_of_f16(std::uint32_t h) {
    const std::uint32_t sign = (h & 0x8000U) << 16;
    const std::uint32_t magnitude = (h & 0x7fffU) << 13;
    // Subnormal: 2^-14 * (1 + m/1024) - 2^-14 is exact, and no operand is subnormal in float.
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(
        std::bit_cast<float>(0x38800000U + magnitude) - std::bit_cast<float>(0x38800000U));
    // Exponent bias 15 -> 127, and exponent 31 (infinity, NaN) -> 255.
    const std::uint32_t special = mask(magnitude >= 0x0f800000U) & 0x38000000U;
    const std::uint32_t normal = magnitude + 0x38000000U + special;
    const std::uint32_t is_subnormal = mask(magnitude < 0x00800000U);
    return sign | (subnormal & is_subnormal) | (normal & ~is_subnormal);
}

constexpr std::uint16_t bf16_of_bits(std::uint32_t u) {
    const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (u >> 16) | 0x40U;
    return static_cast<std::uint16_t>((u & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

// Applies `one` to n elements of In at `in`, writing Out at `out`; neither needs alignment. `one`
// is a lambda: through a pointer to a function nothing is inlined, and so nothing vectorised.
template <class In, class Out, class Function>
void transform(const std::byte* in, base::Elements n, std::byte* out, Function one) {
    const auto count = static_cast<std::size_t>(n);
    std::size_t first = 0;
    const auto convert = [&](std::size_t part) {
        std::array<In, block> from{};
        std::array<Out, block> to{};
        std::memcpy(from.data(), in + first * sizeof(In), part * sizeof(In));
        for (std::size_t i = 0; i < block; ++i) {
            to[i] = one(from[i]);
        }
        std::memcpy(out + first * sizeof(Out), to.data(), part * sizeof(Out));
    };
    for (; first + block <= count; first += block) {
        convert(block);
    }
    if (first < count) {
        convert(count - first);
    }
}

// `exponent`: its bits in a T. All of them set: infinity or NaN.
template <class T>
NotFinite not_finite(const std::byte* raw, base::Elements n, T exponent) {
    NotFinite found{0, n};
    std::array<T, block> values{};
    for (base::Elements at = 0; at < n; at += block) {
        const auto part = std::min<base::Elements>(block, n - at);
        values.fill(0);
        std::memcpy(values.data(), raw + at * static_cast<base::Elements>(sizeof(T)),
                    static_cast<std::size_t>(part) * sizeof(T));
        std::uint32_t any = 0;
        for (std::size_t i = 0; i < block; ++i) {
            any |= mask((values[i] & exponent) == exponent);
        }
        for (std::size_t i = 0; any != 0 && i < block; ++i) {
            if ((values[i] & exponent) == exponent) {
                found.first = std::min(found.first, at + static_cast<base::Elements>(i));
                ++found.count;
            }
        }
    }
    return found;
}

} // namespace

NotFinite find_not_finite(base::DType type, const std::byte* raw, base::Elements n) {
    switch (type) {
    case base::DType::f16:
        return not_finite<std::uint16_t>(raw, n, 0x7c00);
    case base::DType::bf16:
        return not_finite<std::uint16_t>(raw, n, 0x7f80);
    case base::DType::f32:
        break;
    }
    return not_finite<std::uint32_t>(raw, n, 0x7f800000);
}

void to_f32(base::DType type, const std::byte* raw, base::Elements n, float* out) {
    auto* bytes = reinterpret_cast<std::byte*>(out);
    switch (type) {
    case base::DType::f32:
        if (n > 0) {
            std::memcpy(bytes, raw, static_cast<std::size_t>(n) * sizeof(float));
        }
        return;
    case base::DType::f16:
        transform<std::uint16_t, std::uint32_t>(raw, n, bytes,
                                                [](std::uint32_t h) { return bits_of_f16(h); });
        return;
    case base::DType::bf16:
        transform<std::uint16_t, std::uint32_t>(raw, n, bytes,
                                                [](std::uint32_t h) { return bits_of_bf16(h); });
        return;
    }
}

void f32_to_bf16(const float* values, base::Elements n, std::uint16_t* out) {
    transform<std::uint32_t, std::uint16_t>(reinterpret_cast<const std::byte*>(values), n,
                                            reinterpret_cast<std::byte*>(out),
                                            [](std::uint32_t u) { return bf16_of_bits(u); });
}

} // namespace foregather::io
