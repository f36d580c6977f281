// SPDX-License-Identifier: Apache-2.0
// Loss and gradients of the head: against numerical derivatives, by pieces in any order, across
// panels, with unscored rows.
#include "gradients.hpp"

namespace foregather::kernels {
namespace {

struct Case {
    std::size_t scored, width, rows;
    float temperature_scale = 1.0F;
    std::vector<float> x = numbers(scored * width, 1, 2.0F), w = numbers(rows * width, 2, 2.0F);
    std::vector<std::int32_t> targets = {};

    Case(std::size_t s, std::size_t c, std::size_t v, float scale = 1.0F)
        : scored(s), width(c), rows(v), temperature_scale(scale) {
        for (std::size_t i = 0; i < s; ++i) {
            targets.push_back(i % 4 == 3 ? -1 : static_cast<std::int32_t>(i * 7 % v));
        }
    }
};

struct Piece {
    std::size_t first, rows;
};

struct Gradients {
    double loss = -1;
    std::vector<float> dx, dw;
};

constexpr float slope = 0.125F;

ConstSlab part(const ConstSlab& slab, std::size_t first, std::size_t n) {
    return {slab.data + static_cast<Elements>(first) * base::size_of(slab.type),
            static_cast<Elements>(n), slab.type};
}

// Forward by the same pieces, then backward by `pieces` in their order.
Gradients run(const Case& c, const std::vector<Piece>& pieces, ConstSlab x, ConstSlab w,
              int threads = 1, const std::string& library = "openblas") {
    TrainingSet host(threads, {library, ""});
    std::vector<float> maximum(c.scored), target(c.scored);
    std::vector<double> sum(c.scored), loss(1, -1.0);
    std::vector<std::int32_t> best(c.scored);
    HeadState state{maximum, sum, target, best};
    state.scale = c.temperature_scale;
    Gradients g{-1, nans(c.x.size()), nans(c.w.size())};
    host.kernels->head_begin(state, *host.stream);
    for (const Piece& p : pieces) {
        host.kernels->head_piece(x, part(w, p.first * c.width, p.rows * c.width),
                                 static_cast<Elements>(p.first), c.targets, state, *host.stream);
    }
    host.training.loss(state, c.targets, Into::overwrite, loss, *host.stream);
    Into into_dx = Into::overwrite;
    for (const Piece& p : pieces) {
        host.training.head_backward(
            x, part(w, p.first * c.width, p.rows * c.width), static_cast<Elements>(p.first),
            c.targets, state, slope, into_dx, g.dx, Into::overwrite,
            Floats(g.dw).subspan(p.first * c.width, p.rows * c.width), *host.stream);
        into_dx = Into::add;
    }
    host.stream->sync();
    g.loss = loss[0];
    return g;
}

double loss_in_double(const Case& c, const Doubles& x, const Doubles& w) {
    double loss = 0;
    for (std::size_t s = 0; s < c.scored; ++s) {
        Doubles logits(c.rows);
        double sum = 0;
        for (std::size_t r = 0; r < c.rows && c.targets[s] >= 0; ++r) {
            for (std::size_t i = 0; i < c.width; ++i) {
                logits[r] += x[s * c.width + i] * w[r * c.width + i] *
                             static_cast<double>(c.temperature_scale);
            }
            sum += std::exp(logits[r]);
        }
        if (c.targets[s] >= 0) {
            loss += std::log(sum) - logits[static_cast<std::size_t>(c.targets[s])];
        }
    }
    return loss;
}

// The gradients written out in double.
void gradients_in_double(const Case& c, Doubles& dx, Doubles& dw) {
    dx.assign(c.x.size(), 0.0);
    dw.assign(c.w.size(), 0.0);
    const Doubles x = wide(c.x), w = wide(c.w);
    for (std::size_t s = 0; s < c.scored; ++s) {
        Doubles p(c.rows);
        double sum = 0;
        for (std::size_t r = 0; r < c.rows && c.targets[s] >= 0; ++r) {
            for (std::size_t i = 0; i < c.width; ++i) {
                p[r] += x[s * c.width + i] * w[r * c.width + i];
            }
            p[r] = std::exp(p[r]);
            sum += p[r];
        }
        for (std::size_t r = 0; r < c.rows && c.targets[s] >= 0; ++r) {
            const double came = static_cast<std::size_t>(c.targets[s]) == r ? 1.0 : 0.0;
            const double d = static_cast<double>(slope) * (p[r] / sum - came);
            for (std::size_t i = 0; i < c.width; ++i) {
                dx[s * c.width + i] += d * w[r * c.width + i];
                dw[r * c.width + i] += d * x[s * c.width + i];
            }
        }
    }
}

TEST(HeadBackward, IsTheDerivativeOfTheLoss) {
    for (const Case& c : {Case(1, 1, 1), Case(5, 3, 7), Case(9, 4, 11, 0.7F)}) {
        const Gradients g = run(c, {{0, c.rows}}, slab_of(c.x), slab_of(c.w));
        const double exact = loss_in_double(c, wide(c.x), wide(c.w));
        EXPECT_NEAR(g.loss, exact, 1e-6 * std::abs(exact) + 1e-12);
        const auto scaled = [&](const Doubles& x, const Doubles& w) {
            return static_cast<double>(slope) * loss_in_double(c, x, w);
        };
        const Doubles dx =
            derivative([&](const Doubles& in) { return scaled(in, wide(c.w)); }, wide(c.x));
        const Doubles dw =
            derivative([&](const Doubles& in) { return scaled(wide(c.x), in); }, wide(c.w));
        if (c.rows > 1) { // one logit alone has none
            EXPECT_LT(error_of(g.dx, dx), 1e-5) << c.scored;
            EXPECT_LT(error_of(g.dw, dw), 1e-5) << c.scored;
        }
        EXPECT_EQ(c.scored > 3 ? g.dx[3 * c.width] : 0.0F, 0.0F); // an unscored row
    }
}

TEST(HeadBackward, FollowsItsDefinitionAcrossPanelsAndPiecesInAnyOrder) {
    const Case c(300, 10, 1100);
    Doubles dx, dw;
    gradients_in_double(c, dx, dw);
    for (const auto& pieces : std::vector<std::vector<Piece>>{
             {{0, 1100}}, {{700, 400}, {0, 699}, {699, 1}}, {{0, 513}, {513, 587}}}) {
        for (const std::string& library : libraries()) {
            const Gradients g = run(c, pieces, slab_of(c.x), slab_of(c.w), 2, library);
            EXPECT_LT(error_of(g.dx, dx), 1e-5) << library << pieces.size();
            EXPECT_LT(error_of(g.dw, dw), 1e-5) << library << pieces.size();
        }
    }
}

TEST(HeadBackward, GoesThroughMoreThanOneBlockOfColumns) {
    const Case c(3, 800, 5);
    Doubles dx, dw;
    gradients_in_double(c, dx, dw);
    const Gradients g = run(c, {{0, 5}}, slab_of(c.x), slab_of(c.w), 2);
    EXPECT_LT(error_of(g.dx, dx), 2e-5);
    EXPECT_LT(error_of(g.dw, dw), 2e-5);
}

TEST(HeadBackward, RoundsWhatItMultipliesWithBf16) {
    Case c(270, 10, 700);
    const Rounded x(c.x), w(c.w);
    c.x = x.values;
    c.w = w.values;
    Doubles dx, dw;
    gradients_in_double(c, dx, dw);
    for (const std::string& library : libraries()) {
        const Gradients g = run(c, {{0, 300}, {300, 400}}, x.slab(), w.slab(), 2, library);
        EXPECT_LT(error_of(g.dx, dx), 0.005) << library;
        EXPECT_LT(error_of(g.dw, dw), 0.005) << library;
        EXPECT_GT(error_of(g.dx, dx), 1e-5) << library; // it does round
    }
}

TEST(HeadBackward, HasTheSameBitsOnAnyNumberOfThreads) {
    const Case c(300, 10, 900);
    const Rounded x(c.x), w(c.w);
    for (const bool bf16 : {false, true}) {
        const ConstSlab in = bf16 ? x.slab() : slab_of(c.x);
        const ConstSlab weights = bf16 ? w.slab() : slab_of(c.w);
        const Gradients a = run(c, {{0, 900}}, in, weights, 1, "onednn");
        const Gradients b = run(c, {{0, 900}}, in, weights, 3, "onednn");
        EXPECT_EQ(a.dx, b.dx);
        EXPECT_EQ(a.dw, b.dw);
        EXPECT_EQ(a.loss, b.loss);
    }
}

TEST(HeadBackward, WithoutScoredRowsClearsWhatItOverwritesAndTheLossIsZero) {
    TrainingSet host;
    std::vector<float> w(6), dw = {1, 2, 3, 4, 5, 6};
    std::vector<double> sum = {3.0};
    host.training.head_backward({}, slab_of(w), 0, {}, {}, 1.0F, Into::overwrite, {},
                                Into::overwrite, dw, *host.stream);
    host.training.loss({}, {}, Into::add, sum, *host.stream);
    host.stream->sync();
    EXPECT_EQ(dw, std::vector<float>(6));
    EXPECT_EQ(sum[0], 3.0);
    host.training.loss({}, {}, Into::overwrite, sum, *host.stream);
    host.stream->sync();
    EXPECT_EQ(sum[0], 0.0);
}

TEST(HeadBackward, OfALogitThatIsNotFiniteIsNan) {
    Case c(2, 2, 3);
    c.x = {1, 1, 1, 1};
    c.w[1] = HUGE_VALF;
    const Gradients g = run(c, {{0, 3}}, slab_of(c.x), slab_of(c.w));
    EXPECT_TRUE(std::isnan(g.loss));
    EXPECT_TRUE(std::isnan(g.dx[0]));
}

} // namespace
} // namespace foregather::kernels
