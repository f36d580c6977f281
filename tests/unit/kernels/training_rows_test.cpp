// SPDX-License-Identifier: Apache-2.0
// Gradients of the kernels that work row by row, against numerical derivatives or by definition.
#include "gradients.hpp"

namespace foregather::kernels {
namespace {

struct NormGradients {
    std::vector<float> dx, dw;
};

NormGradients norm_backward(TrainingSet& host, const std::vector<float>& x, ConstSlab w,
                            const std::vector<float>& dy) {
    NormGradients g{nans(x.size()), nans(static_cast<std::size_t>(w.n))};
    host.training.rms_norm_backward(x, w, 0.01F, dy, Into::overwrite, g.dx, Into::overwrite, g.dw,
                                    *host.stream);
    host.stream->sync();
    return g;
}

TEST(RmsNormBackward, IsTheDerivativeAtAnyShape) {
    TrainingSet host(2);
    struct Shape {
        std::size_t rows, width;
    };
    for (const Shape n : {Shape{1, 1}, {3, 5}, {19, 8}, {2, 70}}) {
        const std::vector<float> x = numbers(n.rows * n.width, 1), w = numbers(n.width, 2);
        const std::vector<float> dy = numbers(x.size(), 3);
        const auto forward = [&](const Doubles& in, const Doubles& gain) {
            Doubles y;
            for (std::size_t r = 0; r < n.rows; ++r) {
                double squares = 0;
                for (std::size_t i = 0; i < n.width; ++i) {
                    squares += in[r * n.width + i] * in[r * n.width + i];
                }
                const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n.width) +
                                                      static_cast<double>(0.01F));
                for (std::size_t i = 0; i < n.width; ++i) {
                    y.push_back(in[r * n.width + i] * factor * gain[i]);
                }
            }
            return functional(dy, y);
        };
        const NormGradients g = norm_backward(host, x, slab_of(w), dy);
        const Doubles dx =
            derivative([&](const Doubles& in) { return forward(in, wide(w)); }, wide(x));
        const Doubles dw =
            derivative([&](const Doubles& in) { return forward(wide(x), in); }, wide(w));
        EXPECT_LT(error_of(g.dx, dx), 2e-5) << n.rows << " x " << n.width;
        EXPECT_LT(error_of(g.dw, dw), 2e-6) << n.rows << " x " << n.width;
    }
}

TEST(RmsNormBackward, AddsWhereItIsToldAndMayOverwriteDy) {
    TrainingSet host;
    const std::vector<float> x = numbers(5 * 6, 1), w = numbers(6, 2), dy = numbers(5 * 6, 3);
    const NormGradients g = norm_backward(host, x, slab_of(w), dy);
    std::vector<float> dx(x.size(), 2.0F), dw(w.size(), -1.0F), in_place = dy;
    host.training.rms_norm_backward(x, slab_of(w), 0.01F, dy, Into::add, dx, Into::add, dw,
                                    *host.stream);
    std::vector<float> other_dw(w.size());
    host.training.rms_norm_backward(x, slab_of(w), 0.01F, in_place, Into::overwrite, in_place,
                                    Into::overwrite, other_dw, *host.stream);
    host.stream->sync();
    EXPECT_EQ(in_place, g.dx);
    EXPECT_EQ(other_dw, g.dw);
    for (std::size_t i = 0; i < dx.size(); ++i) {
        EXPECT_NEAR(dx[i], g.dx[i] + 2.0F, 1e-6F);
    }
    for (std::size_t i = 0; i < dw.size(); ++i) {
        EXPECT_NEAR(dw[i], g.dw[i] - 1.0F, 1e-6F);
    }
}

TEST(RmsNormBackward, ReadsBf16WeightsAndHasTheSameBitsOnAnyNumberOfThreads) {
    // Wide enough that its blocks are bounded by the room for their sums, and rows enough that
    // they are bounded by their number.
    for (const std::size_t width : {24U, 1200U}) {
        const std::size_t rows = width == 24 ? 5000 : 700;
        const std::vector<float> x = numbers(rows * width, 1), dy = numbers(rows * width, 2);
        const Rounded w(numbers(width, 3));
        TrainingSet one(1), three(3);
        const NormGradients a = norm_backward(one, x, slab_of(w.values), dy);
        const NormGradients b = norm_backward(three, x, w.slab(), dy);
        EXPECT_EQ(a.dx, b.dx);
        EXPECT_EQ(a.dw, b.dw);
        double last = 0; // of the last column of dw
        for (std::size_t r = 0; r < rows; ++r) {
            double squares = 0;
            for (std::size_t i = 0; i < width; ++i) {
                squares += std::pow(static_cast<double>(x[r * width + i]), 2);
            }
            const std::size_t at = r * width + width - 1;
            last += static_cast<double>(x[at]) * static_cast<double>(dy[at]) /
                    std::sqrt(squares / static_cast<double>(width) + static_cast<double>(0.01F));
        }
        EXPECT_NEAR(a.dw.back(), last, 1e-5 * std::sqrt(static_cast<double>(rows)));
    }
}

TEST(RopeBackward, UndoesTheTurn) {
    TrainingSet host(2);
    std::vector<float> cosines, sines;
    for (int i = 0; i < 9 * 3; ++i) {
        cosines.push_back(std::cos(0.37F * static_cast<float>(i)));
        sines.push_back(std::sin(0.37F * static_cast<float>(i)));
    }
    std::vector<std::int32_t> positions;
    for (std::int32_t t = 0; t < 70; ++t) {
        positions.push_back(t % 9);
    }
    const std::vector<float> x = numbers(70 * 2 * 6, 1);
    std::vector<float> turned = x;
    host.kernels->rope(turned, positions, cosines, sines, 2, 6, *host.stream);
    host.stream->sync();
    EXPECT_GT(error_of(turned, wide(x)), 0.1);
    // A turn keeps products: <turn x, dy> = <x, turn back dy>, which is what a gradient is.
    host.training.rope_backward(turned, positions, cosines, sines, 2, 6, *host.stream);
    host.stream->sync();
    EXPECT_LT(error_of(turned, wide(x)), 1e-6);
    positions[3] = 9;
    host.training.rope_backward(turned, positions, cosines, sines, 2, 6, *host.stream);
    const std::string text = refusal_of([&] { host.stream->sync(); });
    EXPECT_NE(text.find("rope_backward: token 3 has position 9"), std::string::npos) << text;
}

TEST(SiluGateBackward, IsTheDerivativeAlsoInPlace) {
    TrainingSet host(2);
    std::vector<float> gate = numbers(41, 1, 8.0F), up = numbers(41, 2), dout = numbers(41, 3);
    gate[0] = -60.0F;
    gate[1] = 60.0F;
    const auto forward = [&](const Doubles& g, const Doubles& u) {
        Doubles y;
        for (std::size_t i = 0; i < g.size(); ++i) {
            y.push_back(g[i] / (1.0 + std::exp(-g[i])) * u[i]);
        }
        return functional(dout, y);
    };
    const Doubles expected_gate =
        derivative([&](const Doubles& in) { return forward(in, wide(up)); }, wide(gate));
    const Doubles expected_up =
        derivative([&](const Doubles& in) { return forward(wide(gate), in); }, wide(up));
    std::vector<float> dgate = nans(41), dup = nans(41);
    host.training.silu_gate_backward(gate, up, dout, slab_of(dgate), slab_of(dup), *host.stream);
    host.stream->sync();
    EXPECT_LT(error_of(dgate, expected_gate), 1e-6);
    EXPECT_LT(error_of(dup, expected_up), 1e-6);
    std::vector<std::uint16_t> gate_bits(41), up_bits(41);
    host.training.silu_gate_backward(gate, up, dout, slab_of_bits(gate_bits), slab_of_bits(up_bits),
                                     *host.stream);
    host.training.silu_gate_backward(gate, up, dout, slab_of(gate), slab_of(up), *host.stream);
    host.stream->sync();
    EXPECT_EQ(gate, dgate);
    EXPECT_EQ(up, dup);
    EXPECT_EQ(gate_bits, Rounded(dgate).bits);
    EXPECT_EQ(up_bits, Rounded(dup).bits);
}

TEST(SiluGateBackward, OfExtremesIsZeroOrTheInput) {
    TrainingSet host;
    const std::vector<float> gate = {-200, 200}, up = {3, 5}, dout = {2, 7};
    std::vector<float> dgate(2), dup(2);
    host.training.silu_gate_backward(gate, up, dout, slab_of(dgate), slab_of(dup), *host.stream);
    host.stream->sync();
    EXPECT_EQ(dgate, (std::vector<float>{0, 35}));
    EXPECT_EQ(dup, (std::vector<float>{0, 1400}));
}

TEST(EmbedBackward, AddsTheTokensOfItsPieceInTheirOrder) {
    TrainingSet host(2);
    const std::vector<std::int32_t> ids = {4, 2, 5, 4, 1};
    const std::vector<float> dx = {10, 1, 20, 21, 30, 31, 1, 2, 50, 51};
    std::vector<float> dw = nans(6); // rows 2, 3, 4
    host.training.embed_backward(ids, 2, dx, Into::overwrite, dw, 2, *host.stream);
    host.stream->sync();
    EXPECT_EQ(dw, (std::vector<float>{20, 21, 0, 0, 11, 3}));
    host.training.embed_backward(ids, 2, dx, Into::add, dw, 2, *host.stream);
    host.stream->sync();
    EXPECT_EQ(dw, (std::vector<float>{40, 42, 0, 0, 22, 6}));
    host.training.embed_backward({}, 2, {}, Into::overwrite, dw, 2, *host.stream);
    host.stream->sync();
    EXPECT_EQ(dw, std::vector<float>(6));
}

TEST(EmbedBackward, IsTheTransposeOfEmbedOnAnyNumberOfThreads) {
    constexpr std::size_t tokens = 300, rows = 40, width = 150;
    std::vector<std::int32_t> ids;
    for (std::size_t t = 0; t < tokens; ++t) {
        ids.push_back(static_cast<std::int32_t>(t * t % 53));
    }
    const std::vector<float> dx = numbers(tokens * width, 1);
    std::vector<float> expected;
    for (const int threads : {1, 3}) {
        TrainingSet host(threads);
        std::vector<float> dw = nans(rows * width);
        host.training.embed_backward(ids, 7, dx, Into::overwrite, dw, width, *host.stream);
        host.stream->sync();
        if (threads == 1) {
            expected = dw;
        }
        EXPECT_EQ(dw, expected);
    }
    Doubles sums(rows * width);
    for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t c = 0; c < width; ++c) {
            const std::int32_t row = ids[t] - 7;
            if (row >= 0 && row < static_cast<std::int32_t>(rows)) {
                sums[static_cast<std::size_t>(row) * width + c] +=
                    static_cast<double>(dx[t * width + c]);
            }
        }
    }
    EXPECT_LT(error_of(expected, sums), 1e-6);
}

TEST(TakeRowsBackward, AddsToTheRowsNamed) {
    TrainingSet host(2);
    const std::vector<float> dy = {1, 2, 3, 4};
    const std::vector<std::int32_t> rows = {2, 0};
    std::vector<float> dx = {10, 10, 20, 20, 30, 30};
    host.training.take_rows_backward(dy, rows, dx, 2, *host.stream);
    host.stream->sync();
    EXPECT_EQ(dx, (std::vector<float>{13, 14, 20, 20, 31, 32}));
    const std::vector<std::int32_t> beyond = {3, 0};
    host.training.take_rows_backward(dy, beyond, dx, 2, *host.stream);
    const std::string text = refusal_of([&] { host.stream->sync(); });
    EXPECT_NE(text.find("row 3 of 3"), std::string::npos) << text;
}

} // namespace
} // namespace foregather::kernels
