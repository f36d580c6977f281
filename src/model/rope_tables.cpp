// SPDX-License-Identifier: Apache-2.0
// RoPE: the frequencies that settings come to, and the tables of cosines and sines. Which settings
// are taken is decided in rope.cpp.
#include <foregather/model/config.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace foregather::model {
namespace {

using Frequencies = std::vector<float>;

// All of this is in float and in this order, as transformers.modeling_rope_utils computes it: at
// position 8000 one unit in the last place of a frequency already turns an angle by 5e-4.

// _compute_llama3_parameters: short waves stay, long ones are stretched by `factor`, those between
// are blended.
void stretch_as_llama3(const Rope& rope, Frequencies& frequencies) {
    const auto factor = static_cast<float>(rope.factor);
    const auto longest = static_cast<float>(rope.original_positions / rope.low_freq_factor);
    const auto shortest = static_cast<float>(rope.original_positions / rope.high_freq_factor);
    for (float& frequency : frequencies) {
        const float wave = (1.0F / frequency) * static_cast<float>(2.0 * std::numbers::pi);
        if (wave > longest) {
            frequency /= factor;
        } else if (wave >= shortest) {
            const float smooth = ((1.0F / wave) * static_cast<float>(rope.original_positions) -
                                  static_cast<float>(rope.low_freq_factor)) /
                                 static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
            frequency = (1.0F - smooth) * frequency / factor + smooth * frequency;
        }
    }
}

// The dimension whose frequency turns so many times over the original positions.
double dimension_of(double turns, const Rope& rope, int head_dim) {
    return head_dim * std::log(rope.original_positions / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
}

// _compute_yarn_parameters: a ramp over the dimensions leads from the frequency itself to the one
// divided by `factor`.
void stretch_as_yarn(const Rope& rope, const Frequencies& powers, int head_dim,
                     Frequencies& frequencies) {
    double low = dimension_of(rope.beta_fast, rope, head_dim);
    double high = dimension_of(rope.beta_slow, rope, head_dim);
    if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, head_dim - 1.0);
    if (low == high) {
        high += 0.001; // as there: no division by zero
    }
    for (std::size_t j = 0; j < frequencies.size(); ++j) {
        const float along =
            (static_cast<float>(j) - static_cast<float>(low)) / static_cast<float>(high - low);
        const float kept = 1.0F - std::clamp(along, 0.0F, 1.0F);
        const float stretched = 1.0F / (static_cast<float>(rope.factor) * powers[j]);
        frequencies[j] = stretched * (1.0F - kept) + frequencies[j] * kept;
    }
}

} // namespace

std::vector<float> rope_frequencies(const Rope& rope, int head_dim) {
    Frequencies powers, frequencies;
    for (int j = 0; j < head_dim; j += 2) {
        const float exponent = static_cast<float>(j) / static_cast<float>(head_dim);
        // Powers, sines and cosines in long double are the same code on every x86-64 processor.
        powers.push_back(static_cast<float>(
            std::pow(static_cast<long double>(rope.theta), static_cast<long double>(exponent))));
        frequencies.push_back(1.0F / powers.back());
    }
    switch (rope.type) {
    case RopeType::plain:
        break;
    case RopeType::linear:
        for (float& frequency : frequencies) {
            frequency /= static_cast<float>(rope.factor);
        }
        break;
    case RopeType::llama3:
        stretch_as_llama3(rope, frequencies);
        break;
    case RopeType::yarn:
        stretch_as_yarn(rope, powers, head_dim, frequencies);
        break;
    }
    return frequencies;
}

RopeTables rope_tables(const Rope& rope, int head_dim, std::int64_t positions) {
    const std::vector<float> frequencies = rope_frequencies(rope, head_dim);
    const auto scale = static_cast<float>(rope.attention_factor);
    RopeTables tables;
    tables.cosines.reserve(static_cast<std::size_t>(positions) * frequencies.size());
    tables.sines.reserve(tables.cosines.capacity());
    for (std::int64_t position = 0; position < positions; ++position) {
        for (const float frequency : frequencies) {
            const auto angle = static_cast<long double>(static_cast<float>(position) * frequency);
            tables.cosines.push_back(static_cast<float>(std::cos(angle)) * scale);
            tables.sines.push_back(static_cast<float>(std::sin(angle)) * scale);
        }
    }
    return tables;
}

} // namespace foregather::model
