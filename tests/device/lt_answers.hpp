// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's several answers to one product, each of which can be timed: what there was to choose
// from, under the rules by which the program chooses (the same workspace, no atomics).
#pragma once

#include <vector>

#include <foregather/device/stream.hpp>

#include "../../src/kernels/cuda/lt_products.hpp"

namespace foregather::device_bench {

class LtAnswers {
public:
    using Shape = kernels::LtProducts::Shape;

    // Asks for `most` answers; the first is what asking for one gives. Of an output without a bias.
    LtAnswers(const Shape& shape, base::View<std::byte> workspace, int most);

    int count() const { return static_cast<int>(answers_.size()); }
    // Enqueues the product by one of them.
    void multiply(int answer, const kernels::LtProducts::Operands& operands,
                  device::Stream& stream) const;

private:
    kernels::LtHandle handle_;
    kernels::LtDesc desc_;
    kernels::LtLayout w_, x_, y_;
    base::View<std::byte> workspace_;
    bool add_;
    std::vector<cublasLtMatmulHeuristicResult_t> answers_;
};

} // namespace foregather::device_bench
