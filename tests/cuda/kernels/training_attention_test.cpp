// SPDX-License-Identifier: Apache-2.0
// Gradients of attention on the emulated device against the host's: documents apart, windows,
// grouped heads, heads of every width, fp32 and bf16; and bits that no place in the pack changes.
#include <cmath>
#include <numeric>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>

#include "training_set.hpp"

namespace foregather::kernels {
namespace {

using base::DType;

struct Case {
    std::vector<std::int32_t> lengths; // of documents
    AttentionShape shape;

    friend std::ostream& operator<<(std::ostream& out, const Case& c) {
        return out << std::accumulate(c.lengths.begin(), c.lengths.end(), 0) << " tokens in "
                   << c.lengths.size() << " documents, " << c.shape.heads << "/" << c.shape.kv_heads
                   << " heads of " << c.shape.head_dim << ", window " << c.shape.window;
    }
};

struct Inputs {
    std::vector<float> q, k, v, dout;
    std::vector<std::int32_t> offsets = {0};

    explicit Inputs(const Case& c) {
        for (const std::int32_t n : c.lengths) {
            offsets.push_back(offsets.back() + n);
        }
        const auto dim = static_cast<std::size_t>(offsets.back() * c.shape.head_dim);
        q = numbers(dim * static_cast<std::size_t>(c.shape.heads), 1, 4.0F);
        k = numbers(dim * static_cast<std::size_t>(c.shape.kv_heads), 2, 2.0F);
        v = numbers(k.size(), 3);
        dout = numbers(q.size(), 4);
    }
};

struct Result {
    std::vector<float> lse, dq, dk, dv;
};

using kernels::same_bits;

bool same_bits(const Result& a, const Result& b) {
    return same_bits(a.lse, b.lse) && same_bits(a.dq, b.dq) && same_bits(a.dk, b.dk) &&
           same_bits(a.dv, b.dv);
}

// Forward, then backward, which may be given other offsets.
Result run(HostSet& set, const Inputs& in, AttentionShape shape, DType type,
           const std::vector<std::int32_t>* backward_offsets = nullptr) {
    DeviceVector<float> q(in.q), k(in.k), v(in.v), dout(in.dout),
        lse(nothing_yet(in.q.size() / static_cast<std::size_t>(shape.head_dim))),
        dq(nothing_yet(in.q.size())), dk(nothing_yet(in.k.size())), dv(nothing_yet(in.k.size()));
    DeviceVector<std::int32_t> offsets(in.offsets);
    Numbers out(nothing_yet(in.q.size()), type);
    set.kernels->attention(*q, *k, *v, Ids(*offsets), shape, out.slab(), *set.stream, *lse);
    set.stream->sync();
    if (backward_offsets != nullptr) {
        *offsets = *backward_offsets;
    }
    set.kernels->training().attention_backward(ConstFloats(*q), ConstFloats(*k), ConstFloats(*v),
                                               out.slab(), ConstFloats(*lse), *dout, Ids(*offsets),
                                               shape, *dq, *dk, *dv, *set.stream);
    set.stream->sync();
    return {*lse, *dq, *dk, *dv};
}

// |a - b| over the largest |b|, which is 0.1 at least: some gradients are 0 but for rounding.
double error_of(const std::vector<float>& a, const std::vector<float>& b) {
    double worst = a.size() == b.size() ? 0 : HUGE_VAL, largest = 0.1;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
        const double error = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        worst = error <= worst ? worst : std::isnan(error) ? HUGE_VAL : error;
        largest = std::max(largest, std::abs(static_cast<double>(b[i])));
    }
    return worst / largest;
}

class AttentionBackwardOnCuda : public testing::TestWithParam<Case> {};

TEST_P(AttentionBackwardOnCuda, IsTheHosts) {
    const Case c = GetParam();
    const Inputs in(c);
    for (const DType type : both_types) {
        const auto here = [&](HostSet& set) { return run(set, in, c.shape, type); };
        const Result cuda = emulated(here), host = on_host(here);
        EXPECT_LE(worst_difference(cuda.lse, host.lse), 2e-6) << base::name_of(type);
        // In bf16 outputs, weights and gradients of scores are rounded, some the other way.
        const double tolerance = type == DType::f32 ? 1e-5 : bf16_step / 2;
        EXPECT_LE(error_of(cuda.dq, host.dq), tolerance) << base::name_of(type);
        EXPECT_LE(error_of(cuda.dk, host.dk), tolerance) << base::name_of(type);
        EXPECT_LE(error_of(cuda.dv, host.dv), tolerance) << base::name_of(type);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionBackwardOnCuda,
    testing::Values(Case{{1}, {1, 1, 2}}, Case{{5}, {2, 1, 6}}, Case{{64}, {1, 1, 16}},
                    Case{{65}, {1, 1, 30}}, Case{{130}, {2, 2, 64}}, Case{{150}, {3, 1, 32}},
                    Case{{0, 3, 0, 0, 70, 1, 64, 0}, {2, 1, 8}}, Case{{63, 65, 1}, {4, 2, 10}},
                    Case{std::vector<std::int32_t>(40, 3), {1, 1, 4}},
                    Case{{150, 40}, {2, 1, 16, 1}}, Case{{150, 40}, {2, 1, 16, 70}},
                    Case{{200}, {1, 1, 16, 66}}, Case{{70}, {1, 1, 66}}, Case{{70}, {1, 1, 96}},
                    Case{{66}, {2, 1, 128}}, Case{{66}, {1, 1, 130}}, Case{{66}, {1, 1, 256}}));

TEST(AttentionBackwardOnCudaBits, DoNotDependOnThePlaceInThePack) {
    const AttentionShape shape{2, 1, 16};
    const Inputs all(Case{{37, 150, 5}, shape});
    Inputs one = all;
    const auto cut = [](std::vector<float>& x, std::size_t row) {
        x = std::vector<float>(x.begin() + static_cast<std::ptrdiff_t>(37 * row),
                               x.begin() + static_cast<std::ptrdiff_t>(187 * row));
    };
    for (std::vector<float>* x : {&one.q, &one.dout}) {
        cut(*x, 32);
    }
    for (std::vector<float>* x : {&one.k, &one.v}) {
        cut(*x, 16);
    }
    one.offsets = {0, 150};
    HostSet set = cuda_set();
    for (const DType type : both_types) {
        Result among = run(set, all, shape, type);
        cut(among.lse, 2);
        cut(among.dq, 32);
        cut(among.dk, 16);
        cut(among.dv, 16);
        EXPECT_TRUE(same_bits(among, run(set, one, shape, type))) << base::name_of(type);
    }
}

TEST(AttentionBackwardOnCudaBits, DoNotChangeByAWindowThatHidesNothing) {
    HostSet set = cuda_set();
    const Inputs in(Case{{150}, {1, 1, 16}});
    for (const DType type : both_types) {
        EXPECT_TRUE(
            same_bits(run(set, in, {1, 1, 16, 0}, type), run(set, in, {1, 1, 16, 150}, type)));
    }
}

TEST(AttentionBackwardOnCudaBits, AreNanAfterBadOffsets) {
    const std::vector<std::int32_t> bad = {1, 130};
    for (const int dim : {6, 130}) { // of bf16 in one launch for keys and values, and in two
        const AttentionShape shape{2, 1, dim};
        const Inputs in(Case{{130}, shape});
        HostSet set = cuda_set();
        for (const DType type : both_types) {
            const Result result = run(set, in, shape, type, &bad);
            for (const std::vector<float>* x : {&result.dq, &result.dk, &result.dv}) {
                for (const float value : *x) {
                    ASSERT_TRUE(std::isnan(value));
                }
            }
        }
    }
}

TEST(AttentionBackwardOnCudaHeads, AreRefusedWhereTheyAreTooWide) {
    HostSet set = cuda_set();
    std::vector<float> x(258), lse(1);
    const std::vector<std::int32_t> offsets = {0, 1};
    EXPECT_NE(refusal_of([&] {
                  set.kernels->training().attention_backward(
                      ConstFloats(x), ConstFloats(x), ConstFloats(x), slab_of(x), ConstFloats(lse),
                      x, Ids(offsets), {1, 1, 258}, x, x, x, *set.stream);
              }).find("heads of 258"),
              std::string::npos);
}

} // namespace
} // namespace foregather::kernels
