// SPDX-License-Identifier: Apache-2.0
// What the tests of training's emulated kernels share beside cuda_set.hpp: rows for products, with
// memory behind them up to the next multiple, and both ways into a result.
#pragma once

#include <array>
#include <cmath>
#include <vector>

#include <foregather/kernels/training.hpp>

#include "cuda_set.hpp"

namespace foregather::kernels {

inline constexpr std::array both_ways = {Into::overwrite, Into::add};
inline constexpr std::array both_types = {base::DType::f32, base::DType::bf16};

inline std::vector<float> nothing_yet(std::size_t n) { return std::vector<float>(n, nan); }

// `values` of some rows, behind them NaN up to a multiple of product_row_multiple rows.
inline std::vector<float> with_room(std::vector<float> values, std::size_t rows) {
    const auto whole =
        static_cast<std::size_t>(round_up(static_cast<Elements>(rows), product_row_multiple));
    values.resize(values.size() / rows * whole, nan);
    return values;
}

inline std::vector<float> first_of(const std::vector<float>& x, std::size_t n) {
    return {x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n)};
}

// What start[i] is for a result that is set, or added to.
inline std::vector<float> start_of(Into into, std::size_t n, std::uint32_t seed) {
    return into == Into::add ? numbers(n, seed) : nothing_yet(n);
}

} // namespace foregather::kernels
