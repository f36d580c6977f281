// SPDX-License-Identifier: Apache-2.0
// Attention of the emulated device against the host's: documents apart, windows, grouped heads,
// heads of every width, fp32 and bf16; and bits that no place in the pack changes.
#include <cmath>
#include <numeric>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_set.hpp"

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

std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& lengths) {
    std::vector<std::int32_t> offsets = {0};
    for (const std::int32_t n : lengths) {
        offsets.push_back(offsets.back() + n);
    }
    return offsets;
}

struct Inputs {
    std::vector<float> q, k, v;
    std::vector<std::int32_t> offsets;

    explicit Inputs(const Case& c) : offsets(offsets_of(c.lengths)) {
        const auto tokens = static_cast<std::size_t>(offsets.back());
        const std::size_t row = tokens * static_cast<std::size_t>(c.shape.heads * c.shape.head_dim);
        const std::size_t kv_row =
            tokens * static_cast<std::size_t>(c.shape.kv_heads * c.shape.head_dim);
        q = numbers(row, 1, 4.0F);
        k = numbers(kv_row, 2, 2.0F);
        v = numbers(kv_row, 3);
    }
};

std::vector<float> attend(HostSet& set, const Inputs& in, AttentionShape shape, DType type) {
    DeviceVector<float> q(in.q), k(in.k), v(in.v);
    DeviceVector<std::int32_t> offsets(in.offsets);
    Numbers out(std::vector<float>(in.q.size(), nan), type);
    set.kernels->attention(*q, *k, *v, Ids(*offsets), shape, out.slab(), *set.stream);
    set.stream->sync();
    return out.values();
}

class AttentionOnCuda : public testing::TestWithParam<Case> {};

TEST_P(AttentionOnCuda, IsTheHosts) {
    const Case c = GetParam();
    const Inputs in(c);
    for (const DType type : {DType::f32, DType::bf16}) {
        const auto run = [&](HostSet& set) { return attend(set, in, c.shape, type); };
        const double tolerance = type == DType::f32 ? 2e-6 : bf16_step / 2;
        EXPECT_LE(worst_difference(emulated(run), on_host(run)), tolerance) << base::name_of(type);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionOnCuda,
    testing::Values(Case{{1}, {1, 1, 2}}, Case{{5}, {2, 1, 6}}, Case{{64}, {1, 1, 16}},
                    Case{{65}, {1, 1, 30}}, Case{{130}, {2, 2, 64}}, Case{{200}, {3, 1, 32}},
                    Case{{0, 3, 0, 0, 70, 1, 64, 0}, {2, 1, 8}}, Case{{63, 65, 1}, {4, 2, 10}},
                    Case{std::vector<std::int32_t>(40, 3), {1, 1, 4}},
                    Case{{150, 40}, {2, 1, 16, 1}}, Case{{150, 40}, {2, 1, 16, 70}},
                    Case{{200}, {1, 1, 16, 64}}, Case{{70}, {1, 1, 66}}, Case{{70}, {1, 1, 96}},
                    Case{{140}, {2, 1, 128}}, Case{{70}, {1, 1, 130}}, Case{{70}, {1, 1, 256}}));

TEST(AttentionOnCudaBits, DoNotDependOnThePlaceInThePack) {
    const AttentionShape shape{2, 1, 16};
    const Inputs all(Case{{37, 150, 5}, shape});
    Inputs one = all;
    const auto cut = [](std::vector<float>& x, std::size_t row) {
        x = std::vector<float>(x.begin() + static_cast<std::ptrdiff_t>(37 * row),
                               x.begin() + static_cast<std::ptrdiff_t>(187 * row));
    };
    cut(one.q, 32);
    cut(one.k, 16);
    cut(one.v, 16);
    one.offsets = {0, 150};
    HostSet set = cuda_set();
    for (const DType type : {DType::f32, DType::bf16}) {
        std::vector<float> among = attend(set, all, shape, type);
        cut(among, 32);
        EXPECT_TRUE(same_bits(among, attend(set, one, shape, type))) << base::name_of(type);
    }
}

TEST(AttentionOnCudaBits, DoNotChangeByAWindowThatHidesNothing) {
    HostSet set = cuda_set();
    const Inputs in(Case{{150}, {1, 1, 16}});
    for (const DType type : {DType::f32, DType::bf16}) {
        EXPECT_TRUE(same_bits(attend(set, in, {1, 1, 16, 0}, type),
                              attend(set, in, {1, 1, 16, 150}, type)));
    }
}

TEST(AttentionOnCudaBits, AreNanWhereAnInputIsAndNowhereBefore) {
    Inputs in(Case{{100, 30}, {1, 1, 16}});
    in.k[70 * 16] = nan; // seen by the rest of the first document
    HostSet set = cuda_set();
    for (const DType type : {DType::f32, DType::bf16}) {
        const std::vector<float> out = attend(set, in, {1, 1, 16}, type);
        for (std::size_t t = 0; t < 130; ++t) {
            EXPECT_EQ(std::isnan(out[t * 16]), t >= 70 && t < 100) << t;
        }
    }
}

class BadOffsets : public testing::TestWithParam<std::vector<std::int32_t>> {};

TEST_P(BadOffsets, PoisonAllOutputs) {
    Inputs in(Case{{130}, {2, 1, 6}});
    in.offsets = GetParam();
    HostSet set = cuda_set();
    for (const DType type : {DType::f32, DType::bf16}) {
        for (const float x : attend(set, in, {2, 1, 6}, type)) {
            ASSERT_TRUE(std::isnan(x));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, BadOffsets,
                         testing::Values(std::vector<std::int32_t>{0},
                                         std::vector<std::int32_t>{0, 129},
                                         std::vector<std::int32_t>{1, 130},
                                         std::vector<std::int32_t>{0, 131},
                                         std::vector<std::int32_t>{0, 90, 80, 130},
                                         std::vector<std::int32_t>{0, -5, 130}));

TEST(AttentionOnCudaHeads, AreRefusedWhereTheyAreTooWide) {
    HostSet set = cuda_set();
    const AttentionShape shape{1, 1, 258};
    const Inputs in(Case{{1}, shape});
    EXPECT_NE(refusal_of([&] { attend(set, in, shape, DType::f32); }), "");
}

} // namespace
} // namespace foregather::kernels
