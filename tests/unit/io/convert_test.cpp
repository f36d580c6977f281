// SPDX-License-Identifier: Apache-2.0
// Every 16-bit value against the definition of its format, in doubles; rounding against a search.
#include <foregather/io/convert.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace foregather::io {
namespace {

// The value of a binary float with these field widths, by its definition.
double value_of(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto mantissa = static_cast<double>(bits & ((1U << mantissa_bits) - 1U));
    const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const double sign = ((bits >> (exponent_bits + mantissa_bits)) & 1U) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) {
        return mantissa == 0.0 ? sign * HUGE_VAL : std::nan("");
    }
    return exponent == 0 ? sign * std::ldexp(mantissa, 1 - bias - mantissa_bits)
                         : sign * std::ldexp(mantissa + std::ldexp(1.0, mantissa_bits),
                                             exponent - bias - mantissa_bits);
}

std::vector<float> convert(base::DType type, const std::vector<std::uint16_t>& halves) {
    std::vector<float> out(halves.size());
    to_f32(type, reinterpret_cast<const std::byte*>(halves.data()), std::ssize(halves), out.data());
    return out;
}

void check_all_values(base::DType type, int exponent_bits, int mantissa_bits) {
    std::vector<std::uint16_t> halves(65536);
    for (std::size_t i = 0; i < halves.size(); ++i) {
        halves[i] = static_cast<std::uint16_t>(i);
    }
    const std::vector<float> out = convert(type, halves);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const double expected = value_of(bits, exponent_bits, mantissa_bits);
        const double got = out[bits];
        if (std::isnan(expected)) {
            // Sign and payload of NaN stay, at the top of the mantissa.
            const auto raw = std::bit_cast<std::uint32_t>(out[bits]);
            const std::uint32_t payload = bits & ((1U << mantissa_bits) - 1U);
            EXPECT_EQ(raw,
                      ((bits & 0x8000U) << 16) | 0x7f800000U | (payload << (23 - mantissa_bits)));
        } else {
            EXPECT_EQ(got, expected) << bits;
            EXPECT_EQ(std::signbit(got), std::signbit(expected)) << bits;
        }
    }
}

TEST(Convert, every_bfloat16_is_exact) { check_all_values(base::DType::bf16, 8, 7); }
TEST(Convert, every_float16_is_exact) { check_all_values(base::DType::f16, 5, 10); }

TEST(Convert, any_length_and_alignment_touches_its_own_elements_only) {
    for (std::size_t n = 0; n < 200; ++n) {
        std::vector<std::byte> raw(2 * n + 1);
        for (std::size_t i = 0; i < n; ++i) {
            const auto half = static_cast<std::uint16_t>(0x3f80U + i);
            std::memcpy(raw.data() + 1 + 2 * i, &half, 2);
        }
        std::vector<float> out(n + 2, -7.0F);
        to_f32(base::DType::bf16, raw.data() + 1, static_cast<std::int64_t>(n), out.data() + 1);
        EXPECT_EQ(out.front(), -7.0F);
        EXPECT_EQ(out.back(), -7.0F);
        for (std::size_t i = 0; i < n; ++i) {
            EXPECT_EQ(out[i + 1], value_of(static_cast<std::uint32_t>(0x3f80U + i), 8, 7));
        }
    }
}

TEST(Convert, float32_is_copied_bit_for_bit) {
    const std::vector<std::uint32_t> bits{0x7fa00001U, 0x80000000U, 0x00000001U, 0x3f800000U};
    std::vector<float> out(bits.size());
    to_f32(base::DType::f32, reinterpret_cast<const std::byte*>(bits.data()), 4, out.data());
    for (std::size_t i = 0; i < bits.size(); ++i) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]), bits[i]);
    }
}

// The nearest bfloat16 by its definition: the closer neighbour, at a tie the even one. Infinity
// stands for the next value that the exponent would have.
std::uint16_t nearest(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto below = static_cast<std::uint16_t>(bits >> 16),
               above = static_cast<std::uint16_t>(below + 1);
    const auto magnitude = [](std::uint16_t half) {
        return (half & 0x7fffU) == 0x7f80U ? std::ldexp(1.0, 128) : std::abs(value_of(half, 8, 7));
    };
    if (std::isinf(value)) {
        return below;
    }
    const double exact = std::abs(static_cast<double>(value));
    const double down = exact - magnitude(below), up = magnitude(above) - exact;
    return down < up || (down == up && (below & 1U) == 0) ? below : above;
}

TEST(Convert, rounding_to_bfloat16_is_to_nearest_ties_to_even) {
    std::vector<float> values;
    for (std::uint32_t upper = 0; upper < 65536; ++upper) {
        for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
            values.push_back(std::bit_cast<float>((upper << 16) | lower));
        }
    }
    std::vector<std::uint16_t> out(values.size());
    f32_to_bf16(values.data(), std::ssize(values), out.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (std::isnan(values[i])) {
            EXPECT_TRUE(std::isnan(value_of(out[i], 8, 7))) << i;
            EXPECT_EQ((out[i] & 0x8000U) != 0, std::signbit(values[i])) << i;
        } else {
            EXPECT_EQ(out[i], nearest(values[i])) << std::bit_cast<std::uint32_t>(values[i]);
        }
    }
}

} // namespace
} // namespace foregather::io
