// SPDX-License-Identifier: Apache-2.0
// Random weights for a model to be trained from nothing. Each element follows from the seed, the
// tensor's name and its own index alone: any number of ranks begins with the same weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/base/view.hpp>
#include <foregather/shard/load.hpp>

namespace foregather::job {

class InitialWeights {
public:
    // deviation: of the normal distribution, mean 0, that matrices are drawn from.
    InitialWeights(std::int64_t seed, double deviation) : seed_(seed), deviation_(deviation) {}

    // As shard::Loader::load() from a file that holds these weights: matrices normal, the weights
    // of norms (tensors of one dimension) 1, biases 0; padding becomes zero. Blocks.
    void fill(const shard::UnitSpec& unit, const shard::ShardLayout& layout, int rank,
              shard::Destination& destination);

    // Elements [first, first + to.size()) of a tensor.
    void fill(const std::string& tensor, const base::Shape& shape, base::Elements first,
              base::View<float> to) const;

private:
    std::int64_t seed_;
    double deviation_;
    std::vector<float> values_; // of a piece on its way to bf16
};

} // namespace foregather::job
