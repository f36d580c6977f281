// SPDX-License-Identifier: Apache-2.0
// Gradients of products around the library that multiplies: emulated device kernels against the
// host's. Rows beyond the tokens are NaN before and must not enter a sum.
#include <vector>

#include <gtest/gtest.h>

#include "training_set.hpp"

namespace foregather::kernels {
namespace {

using base::DType;

struct Size {
    std::size_t tokens, in, out;
};

// dx, dw and dbias, one behind the other.
std::vector<float> gradients(HostSet& set, const Size& n, DType type, Into into) {
    Numbers dy(with_room(numbers(n.tokens * n.out, 1), n.tokens), type),
        x(with_room(numbers(n.tokens * n.in, 2), n.tokens), type),
        w(numbers(n.out * n.in, 3), type);
    DeviceVector<float> dx(with_room(start_of(into, n.tokens * n.in, 4), n.tokens)),
        dw(start_of(into, n.out * n.in, 5)), dbias(start_of(into, n.out, 6));
    const auto tokens = static_cast<Elements>(n.tokens);
    const auto rows = [&](Numbers& all, std::size_t width) {
        return ConstSlab(all.slab()).part(0, static_cast<Elements>(n.tokens * width));
    };
    TrainingKernels& training = set.kernels->training();
    training.product_weight_gradient(rows(dy, n.out), rows(x, n.in), into, *dw, *dbias, tokens,
                                     *set.stream);
    training.product_input_gradient(rows(dy, n.out), w.slab(), into,
                                    Floats(*dx).first(n.tokens * n.in), tokens, *set.stream);
    set.stream->sync();
    std::vector<float> all = first_of(*dx, n.tokens * n.in);
    all.insert(all.end(), dw->begin(), dw->end());
    all.insert(all.end(), dbias->begin(), dbias->end());
    return all;
}

TEST(TrainingProductsOnCuda, AreTheHostsWhateverLiesBeyondTheTokens) {
    for (const Size& n : {Size{1, 1, 1}, Size{3, 7, 5}, Size{256, 4, 9}, Size{259, 12, 70}}) {
        for (const DType type : both_types) {
            for (const Into into : both_ways) {
                const auto run = [&](HostSet& set) { return gradients(set, n, type, into); };
                EXPECT_LE(worst_difference(emulated(run), on_host(run)), 3e-6)
                    << n.tokens << ' ' << base::name_of(type);
            }
        }
    }
}

TEST(TrainingProductsOnCuda, OfNoTokensClearWhatTheyOverwrite) {
    HostSet set = cuda_set();
    DeviceVector<float> dw(numbers(6, 1)), dbias(numbers(2, 2));
    set.kernels->training().product_weight_gradient({}, {}, Into::overwrite, *dw, *dbias, 0,
                                                    *set.stream);
    EXPECT_TRUE(same_bits(*dw, std::vector<float>(6)));
    EXPECT_TRUE(same_bits(*dbias, std::vector<float>(2)));
}

} // namespace
} // namespace foregather::kernels
