// SPDX-License-Identifier: Apache-2.0
// What ranks bring to the reductions of tests, and the sums that must come out, by the definition:
// in rank order, in fp32, rounded once. Who reduces is said in the tests.
#pragma once

#include <cstring>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/io/convert.hpp>

namespace foregather::tests {

// Of very different sizes and signs: another order of addition gives other bits.
inline float summand(int rank, base::Elements i, int salt) {
    const auto mixed = static_cast<std::uint32_t>((rank + 1) * 7919 + i * 31 + salt * 101);
    const auto value = static_cast<float>(mixed * 2654435761U % 1'000'003U) - 500'000.0F;
    return value * (mixed % 3 == 0 ? 1e-6F : mixed % 3 == 1 ? 1.0F : 3e4F);
}

inline std::vector<std::byte> bytes_as(base::DType type, const std::vector<float>& values) {
    const auto n = static_cast<base::Elements>(values.size());
    std::vector<std::byte> bytes(static_cast<std::size_t>(base::bytes_of(n, type).count));
    if (type == base::DType::bf16) {
        io::f32_to_bf16(values.data(), n, reinterpret_cast<std::uint16_t*>(bytes.data()));
    } else if (n > 0) {
        std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    return bytes;
}

// Elements [first, first + n) of a rank.
inline std::vector<std::byte> summands(base::DType type, int rank, base::Elements first,
                                       base::Elements n, int salt) {
    std::vector<float> values;
    for (base::Elements i = first; i < first + n; ++i) {
        values.push_back(summand(rank, i, salt));
    }
    return bytes_as(type, values);
}

// The definition, of the same.
inline std::vector<std::byte> sums(base::DType type, int ranks, base::Elements first,
                                   base::Elements n, int salt) {
    std::vector<float> sum(static_cast<std::size_t>(n));
    std::vector<float> term(static_cast<std::size_t>(n));
    for (int r = 0; r < ranks; ++r) {
        io::to_f32(type, summands(type, r, first, n, salt).data(), n, term.data());
        for (std::size_t i = 0; i < sum.size(); ++i) {
            sum[i] = r == 0 ? term[i] : sum[i] + term[i];
        }
    }
    return bytes_as(type, sum);
}

} // namespace foregather::tests
