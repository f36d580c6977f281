// SPDX-License-Identifier: Apache-2.0
// Gradients of products: against numerical derivatives, across the edges of the grid against plain
// sums in double, of both types, with every library.
#include "gradients.hpp"

namespace foregather::kernels {
namespace {

struct Sizes {
    std::size_t tokens, in, out;
};

struct Gradients {
    std::vector<float> dx, dw, dbias;
};

Gradients gradients(TrainingSet& host, const Sizes& n, ConstSlab x, ConstSlab w, ConstSlab dy,
                    const Gradients* start = nullptr) {
    const Into into = start != nullptr ? Into::add : Into::overwrite;
    Gradients g = start != nullptr
                      ? *start
                      : Gradients{nans(n.tokens * n.in), nans(n.out * n.in), nans(n.out)};
    const auto tokens = static_cast<Elements>(n.tokens);
    host.training.product_input_gradient(dy, w, into, g.dx, tokens, *host.stream);
    host.training.product_weight_gradient(dy, x, into, g.dw, g.dbias, tokens, *host.stream);
    host.stream->sync();
    return g;
}

// dx = start + dy w, dw = start + dy^T x, dbias = start + sums in double.
void expect_gradients(const Sizes& n, const std::vector<float>& x, const std::vector<float>& w,
                      const std::vector<float>& dy, const Gradients* start, const Gradients& got) {
    Doubles dx = start != nullptr ? wide(start->dx) : Doubles(n.tokens * n.in);
    Doubles dw = start != nullptr ? wide(start->dw) : Doubles(n.out * n.in);
    Doubles dbias = start != nullptr ? wide(start->dbias) : Doubles(n.out);
    for (std::size_t t = 0; t < n.tokens; ++t) {
        for (std::size_t o = 0; o < n.out; ++o) {
            const auto d = static_cast<double>(dy[t * n.out + o]);
            dbias[o] += d;
            for (std::size_t i = 0; i < n.in; ++i) {
                dx[t * n.in + i] += d * static_cast<double>(w[o * n.in + i]);
                dw[o * n.in + i] += d * static_cast<double>(x[t * n.in + i]);
            }
        }
    }
    EXPECT_LT(error_of(got.dx, dx), 2e-6) << n.tokens << ' ' << n.in << ' ' << n.out;
    EXPECT_LT(error_of(got.dw, dw), 2e-6) << n.tokens << ' ' << n.in << ' ' << n.out;
    EXPECT_LT(error_of(got.dbias, dbias), 1e-6) << n.tokens << ' ' << n.in << ' ' << n.out;
}

const std::vector<Sizes> sizes = {{1, 1, 1},    {3, 7, 5},   {129, 20, 131},
                                  {70, 770, 9}, {9, 4, 770}, {520, 33, 129}};

class TrainingProducts : public testing::TestWithParam<std::string> {
protected:
    TrainingSet host_{2, {GetParam(), ""}};
};
INSTANTIATE_TEST_SUITE_P(Training, TrainingProducts, testing::ValuesIn(libraries()),
                         name_of_library);

TEST(TrainingProduct, GradientsAreTheDerivatives) {
    const Sizes n{5, 3, 7};
    TrainingSet host;
    const std::vector<float> x = numbers(n.tokens * n.in, 1), w = numbers(n.out * n.in, 2);
    const std::vector<float> bias = numbers(n.out, 3), dy = numbers(n.tokens * n.out, 4);
    const auto forward = [&](const Doubles& in, const Doubles& weight, const Doubles& offset) {
        Doubles y;
        for (std::size_t t = 0; t < n.tokens; ++t) {
            for (std::size_t o = 0; o < n.out; ++o) {
                double sum = offset[o];
                for (std::size_t i = 0; i < n.in; ++i) {
                    sum += in[t * n.in + i] * weight[o * n.in + i];
                }
                y.push_back(sum);
            }
        }
        return functional(dy, y);
    };
    const Gradients g = gradients(host, n, slab_of(x), slab_of(w), slab_of(dy));
    const Doubles dx =
        derivative([&](const Doubles& in) { return forward(in, wide(w), wide(bias)); }, wide(x));
    const Doubles dw =
        derivative([&](const Doubles& in) { return forward(wide(x), in, wide(bias)); }, wide(w));
    const Doubles dbias =
        derivative([&](const Doubles& in) { return forward(wide(x), wide(w), in); }, wide(bias));
    EXPECT_LT(error_of(g.dx, dx), 1e-6);
    EXPECT_LT(error_of(g.dw, dw), 1e-6);
    EXPECT_LT(error_of(g.dbias, dbias), 1e-6);
}

TEST_P(TrainingProducts, FollowTheDefinitionAcrossTheGrid) {
    for (const Sizes& n : sizes) {
        const std::vector<float> x = numbers(n.tokens * n.in, 1), w = numbers(n.out * n.in, 2);
        const std::vector<float> dy = numbers(n.tokens * n.out, 3);
        const Gradients start{numbers(x.size(), 4), numbers(w.size(), 5), numbers(n.out, 6)};
        for (const Gradients* before : {static_cast<const Gradients*>(nullptr), &start}) {
            expect_gradients(n, x, w, dy, before,
                             gradients(host_, n, slab_of(x), slab_of(w), slab_of(dy), before));
        }
    }
}

TEST_P(TrainingProducts, SumRoundedOperandsInFp32) {
    for (const Sizes& n : sizes) {
        const Rounded x(numbers(n.tokens * n.in, 1)), w(numbers(n.out * n.in, 2));
        const Rounded dy(numbers(n.tokens * n.out, 3));
        expect_gradients(n, x.values, w.values, dy.values, nullptr,
                         gradients(host_, n, x.slab(), w.slab(), dy.slab()));
    }
}

TEST_P(TrainingProducts, HaveTheSameBitsOnAnyNumberOfThreads) {
    const Sizes n{300, 57, 800};
    const std::vector<float> x = numbers(n.tokens * n.in, 1), w = numbers(n.out * n.in, 2);
    const std::vector<float> dy = numbers(n.tokens * n.out, 3);
    TrainingSet one(1, {GetParam(), ""}), three(3, {GetParam(), ""});
    const Gradients a = gradients(one, n, slab_of(x), slab_of(w), slab_of(dy));
    const Gradients b = gradients(three, n, slab_of(x), slab_of(w), slab_of(dy));
    EXPECT_EQ(a.dx, b.dx);
    EXPECT_EQ(a.dw, b.dw);
    EXPECT_EQ(a.dbias, b.dbias);
}

TEST(TrainingProduct, OfNoTokensClearsTheWeightsGradientThatItOverwrites) {
    TrainingSet host;
    std::vector<float> dw = {1, 2, 3, 4, 5, 6}, dbias = {1, 2};
    host.training.product_weight_gradient({}, {}, Into::add, dw, dbias, 0, *host.stream);
    host.stream->sync();
    EXPECT_EQ(dw[5], 6.0F);
    host.training.product_weight_gradient({}, {}, Into::overwrite, dw, dbias, 0, *host.stream);
    host.stream->sync();
    EXPECT_EQ(dw, std::vector<float>(6));
    EXPECT_EQ(dbias, std::vector<float>(2));
}

} // namespace
} // namespace foregather::kernels
