// SPDX-License-Identifier: Apache-2.0
// Normal numbers by counters: SplitMix64 (Steele, Lea, Flood 2014), which gives its n-th number
// without those before it, and the transform of Box and Muller.
#include "initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <foregather/io/convert.hpp>
#include <foregather/io/digest.hpp>

namespace foregather::job {
namespace {

constexpr base::Elements piece = 1 << 16; // elements that are drawn at once

// Number `n` of the sequence that begins at `key`.
std::uint64_t split_mix(std::uint64_t key, std::uint64_t n) {
    std::uint64_t z = key + (n + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// In [0, 1), a multiple of 2^-53.
double uniform(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// Where a tensor's sequence begins: nothing that another seed or name is near to.
std::uint64_t key_of(std::int64_t seed, const std::string& tensor) {
    const std::string digest = io::sha256_of_text(std::to_string(seed) + " " + tensor);
    return std::stoull(digest.substr(0, 16), nullptr, 16);
}

} // namespace

void InitialWeights::fill(const std::string& tensor, const base::Shape& shape, base::Elements first,
                          base::View<float> to) const {
    if (shape.size() == 1) {
        std::fill(to.begin(), to.end(), tensor.ends_with(".bias") ? 0.0F : 1.0F);
        return;
    }
    const std::uint64_t key = key_of(seed_, tensor);
    const auto begin = static_cast<std::uint64_t>(first), end = begin + to.size();
    // Elements 2p and 2p + 1 are one pair.
    for (std::uint64_t p = begin / 2; 2 * p < end; ++p) {
        const double radius =
            deviation_ * std::sqrt(-2 * std::log1p(-uniform(split_mix(key, 2 * p))));
        const double angle = 2 * std::numbers::pi * uniform(split_mix(key, 2 * p + 1));
        if (2 * p >= begin) {
            to[2 * p - begin] = static_cast<float>(radius * std::cos(angle));
        }
        if (2 * p + 1 < end) {
            to[2 * p + 1 - begin] = static_cast<float>(radius * std::sin(angle));
        }
    }
}

void InitialWeights::fill(const shard::UnitSpec& unit, const shard::ShardLayout& layout, int rank,
                          shard::Destination& destination) {
    shard::fill_part(unit, layout, rank, destination, [&](const shard::Slice& slice) {
        const shard::TensorPart& part = *slice.part;
        const base::Elements first = slice.first_row * part.row_elements() + slice.skip;
        for (base::Elements done = 0; done < slice.elements;) {
            const base::Slab to =
                destination.next(std::min({slice.elements - done, destination.most(), piece}));
            if (to.type == base::DType::f32) {
                fill(part.tensor, part.shape, first + done,
                     {to.f32(), static_cast<std::size_t>(to.n)});
            } else {
                values_.resize(static_cast<std::size_t>(to.n));
                fill(part.tensor, part.shape, first + done, values_);
                io::f32_to_bf16(values_.data(), to.n, to.bf16());
            }
            done += to.n;
        }
    });
}

} // namespace foregather::job
