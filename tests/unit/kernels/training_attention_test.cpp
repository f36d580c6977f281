// SPDX-License-Identifier: Apache-2.0
// Gradients of attention: against numerical derivatives of its definition where it is small, and
// against the same gradients written out in double across the edges of blocks.
#include "gradients.hpp"

namespace foregather::kernels {
namespace {

struct Inputs {
    Doubles q, k, v;
};

struct Case {
    std::vector<std::int32_t> offsets = {0};
    AttentionShape shape;
    std::vector<float> q, k, v, dout;

    Case(const std::vector<std::int32_t>& lengths, AttentionShape s, float scale = 2.0F)
        : shape(s) {
        for (const std::int32_t n : lengths) {
            offsets.push_back(offsets.back() + n);
        }
        const auto tokens = static_cast<std::size_t>(offsets.back());
        const std::size_t dim = static_cast<std::size_t>(s.head_dim) * tokens;
        q = numbers(dim * static_cast<std::size_t>(s.heads), 1, scale);
        k = numbers(dim * static_cast<std::size_t>(s.kv_heads), 2, 2.0F);
        v = numbers(dim * static_cast<std::size_t>(s.kv_heads), 3);
        dout = numbers(q.size(), 4);
    }
    Inputs inputs() const { return {wide(q), wide(k), wide(v)}; }
};

struct Gradients {
    std::vector<float> out, lse, dq, dk, dv;
};

Gradients run(const Case& c, int threads = 1, const std::string& library = "openblas",
              bool bf16 = false) {
    TrainingSet host(threads, {library, ""});
    std::vector<float> q = c.q, k = c.k, v = c.v, dout = c.dout;
    Gradients g{nans(q.size()), nans(q.size() / static_cast<std::size_t>(c.shape.head_dim)),
                nans(q.size()), nans(k.size()), nans(v.size())};
    std::vector<std::uint16_t> bits(q.size());
    const Slab out = bf16 ? slab_of_bits(bits) : slab_of(g.out);
    host.kernels->attention(q, k, v, c.offsets, c.shape, out, *host.stream, g.lse);
    host.training.attention_backward(q, k, v, out, g.lse, dout, c.offsets, c.shape, g.dq, g.dk,
                                     g.dv, *host.stream);
    host.stream->sync();
    return g;
}

// Calls visit(t, first, end, h) for the keys [first, end) that token t sees, for each query head.
template <class Visit>
void each_row(const Case& c, const Visit& visit) {
    for (std::size_t d = 0; d + 1 < c.offsets.size(); ++d) {
        for (std::int32_t t = c.offsets[d]; t < c.offsets[d + 1]; ++t) {
            std::int32_t first = c.offsets[d];
            if (c.shape.window > 0) {
                first = std::max(first, t + 1 - static_cast<std::int32_t>(c.shape.window));
            }
            for (int h = 0; h < c.shape.heads; ++h) {
                visit(static_cast<std::size_t>(t), static_cast<std::size_t>(first),
                      static_cast<std::size_t>(t) + 1, static_cast<std::size_t>(h));
            }
        }
    }
}

struct Reference { // in double, by the definition
    Doubles out, lse, dq, dk, dv;
};

Reference reference(const Case& c, const Inputs& in, bool backward) {
    const auto dim = static_cast<std::size_t>(c.shape.head_dim);
    const auto heads = static_cast<std::size_t>(c.shape.heads);
    const auto kv_heads = static_cast<std::size_t>(c.shape.kv_heads);
    const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
    Reference r{Doubles(in.q.size()), Doubles(in.q.size() / dim), Doubles(in.q.size()),
                Doubles(in.k.size()), Doubles(in.v.size())};
    each_row(c, [&](std::size_t t, std::size_t first, std::size_t end, std::size_t h) {
        const std::size_t at = (t * heads + h) * dim;
        const auto kv = [&](std::size_t s) {
            return (s * kv_heads + h / (heads / kv_heads)) * dim;
        };
        Doubles p, dp;
        double sum = 0, mean = 0;
        for (std::size_t s = first; s < end; ++s) {
            double score = 0;
            for (std::size_t j = 0; j < dim; ++j) {
                score += in.q[at + j] * in.k[kv(s) + j] * scale;
            }
            p.push_back(std::exp(score));
            sum += p.back();
        }
        r.lse[t * heads + h] = std::log(sum);
        for (std::size_t s = first; s < end; ++s) {
            double& weight = p[s - first];
            weight /= sum;
            double along = 0;
            for (std::size_t j = 0; j < dim; ++j) {
                r.out[at + j] += weight * in.v[kv(s) + j];
                along += backward ? static_cast<double>(c.dout[at + j]) * in.v[kv(s) + j] : 0;
            }
            dp.push_back(along);
            mean += weight * along;
        }
        for (std::size_t s = first; backward && s < end; ++s) {
            const double ds = p[s - first] * (dp[s - first] - mean) * scale;
            for (std::size_t j = 0; j < dim; ++j) {
                r.dq[at + j] += ds * in.k[kv(s) + j];
                r.dk[kv(s) + j] += ds * in.q[at + j];
                r.dv[kv(s) + j] += p[s - first] * static_cast<double>(c.dout[at + j]);
            }
        }
    });
    return r;
}

TEST(AttentionBackward, IsTheDerivative) {
    for (const Case& c : {Case({5}, {1, 1, 2}), Case({3, 0, 1, 4}, {4, 2, 3}),
                          Case({1, 9}, {3, 1, 4, 3}), Case({7}, {2, 2, 5, 2})}) {
        const auto f = [&](const Inputs& in) {
            return functional(c.dout, reference(c, in, false).out);
        };
        const Inputs in = c.inputs();
        const Gradients g = run(c);
        EXPECT_LT(error_of(g.dq, derivative(
                                     [&](const Doubles& x) {
                                         return f({x, in.k, in.v});
                                     },
                                     in.q)),
                  1e-5);
        EXPECT_LT(error_of(g.dk, derivative(
                                     [&](const Doubles& x) {
                                         return f({in.q, x, in.v});
                                     },
                                     in.k)),
                  1e-5);
        EXPECT_LT(error_of(g.dv, derivative(
                                     [&](const Doubles& x) {
                                         return f({in.q, in.k, x});
                                     },
                                     in.v)),
                  1e-5);
    }
}

TEST(AttentionBackward, FollowsItsDefinitionAcrossBlocks) {
    for (const Case& c :
         {Case({130, 0, 3}, {4, 2, 8}), Case({63, 64, 65}, {2, 1, 8, 40}),
          Case({40, 140}, {3, 3, 10, 129}), Case({257}, {2, 1, 16}), Case({300}, {1, 1, 4, 2})}) {
        const Reference exact = reference(c, c.inputs(), true);
        for (const std::string& library : libraries()) {
            const Gradients g = run(c, 2, library);
            EXPECT_LT(error_of(g.out, exact.out), 3e-6);
            EXPECT_LT(error_of(g.lse, exact.lse), 1e-6);
            EXPECT_LT(error_of(g.dq, exact.dq), 1e-5) << library << c.offsets.back();
            EXPECT_LT(error_of(g.dk, exact.dk), 1e-5) << library << c.offsets.back();
            EXPECT_LT(error_of(g.dv, exact.dv), 1e-5) << library << c.offsets.back();
        }
    }
}

TEST(AttentionBackward, RoundsWhatItMultipliesWithBf16) {
    const Case c({20, 150}, {4, 2, 8, 60}, 1.0F);
    Case rounded = c;
    rounded.q = Rounded(c.q).values;
    rounded.k = Rounded(c.k).values;
    rounded.v = Rounded(c.v).values;
    rounded.dout = Rounded(c.dout).values;
    const Gradients exact = run(rounded);
    for (const std::string& library : libraries()) {
        const Gradients g = run(c, 2, library, true);
        EXPECT_LT(error_of(g.lse, wide(exact.lse)), 1e-6);
        for (const auto& [got, fp32] :
             {std::pair{g.dq, exact.dq}, {g.dk, exact.dk}, {g.dv, exact.dv}}) {
            EXPECT_LT(error_of(got, wide(fp32)), 0.01) << library;
            EXPECT_GT(error_of(got, wide(fp32)), 1e-5) << library; // it does round
        }
    }
}

TEST(AttentionBackward, HasTheSameBitsOnAnyNumberOfThreads) {
    const Case c({200, 90}, {4, 2, 8, 100});
    for (const bool bf16 : {false, true}) {
        const Gradients a = run(c, 1, "onednn", bf16), b = run(c, 3, "onednn", bf16);
        EXPECT_EQ(a.lse, b.lse);
        EXPECT_EQ(a.dq, b.dq);
        EXPECT_EQ(a.dk, b.dk);
        EXPECT_EQ(a.dv, b.dv);
    }
}

TEST(AttentionBackward, KeepsItsBitsIfAWindowHidesNothing) {
    const Case all({150, 30}, {2, 1, 8}), hidden({150, 30}, {2, 1, 8, 150});
    const Gradients a = run(all), b = run(hidden);
    EXPECT_EQ(a.dq, b.dq);
    EXPECT_EQ(a.dk, b.dk);
    EXPECT_EQ(a.dv, b.dv);
}

} // namespace
} // namespace foregather::kernels
