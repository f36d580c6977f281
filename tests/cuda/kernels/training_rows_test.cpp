// SPDX-License-Identifier: Apache-2.0
// Gradients of embedding, RoPE, gate and rows taken out, and rounding: emulated device kernels
// against the host's, over widths that vectors of four cut evenly and widths that they do not.
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "training_set.hpp"

namespace foregather::kernels {
namespace {

using base::DType;

class CountsOnCuda : public testing::TestWithParam<std::tuple<int, DType>> {};

TEST_P(CountsOnCuda, ConvertRoundsAsTheHostDoes) {
    const auto [n, type] = GetParam();
    const auto run = [n = n, type = type](HostSet& set) {
        std::vector<float> values = numbers(static_cast<std::size_t>(n), 1, 12.0F);
        values.back() = nan;
        DeviceVector<float> x(values);
        Numbers y(nothing_yet(x->size()), type);
        set.kernels->training().convert(ConstFloats(*x), y.slab(), *set.stream);
        set.stream->sync();
        return y.values();
    };
    EXPECT_EQ(worst_difference(emulated(run), on_host(run)), 0.0);
}

TEST_P(CountsOnCuda, GatePassesBackWhatTheHostDoes) {
    const auto [n, type] = GetParam();
    const auto run = [n = static_cast<std::size_t>(n), type = type](HostSet& set) {
        std::vector<float> values = numbers(n, 1, 12.0F);
        values.front() = -200.0F;
        values.back() = 200.0F;
        DeviceVector<float> gate(values), up(numbers(n, 2)), dout(numbers(n, 3));
        Numbers dgate(nothing_yet(n), type), dup(nothing_yet(n), type);
        set.kernels->training().silu_gate_backward(ConstFloats(*gate), ConstFloats(*up),
                                                   ConstFloats(*dout), dgate.slab(), dup.slab(),
                                                   *set.stream);
        set.stream->sync();
        std::vector<float> both = dgate.values();
        const std::vector<float> more = dup.values();
        both.insert(both.end(), more.begin(), more.end());
        return both;
    };
    EXPECT_LE(worst_difference(emulated(run), on_host(run)), type == DType::f32 ? 2e-6 : bf16_step);
}

INSTANTIATE_TEST_SUITE_P(Counts, CountsOnCuda,
                         testing::Combine(testing::Values(1, 3, 4, 1023, 4096),
                                          testing::Values(DType::f32, DType::bf16)));

TEST(GateBackwardOnCuda, MayOverwriteItsInputsAndKeepsNan) {
    const auto run = [](HostSet& set) {
        std::vector<float> values = numbers(516, 1, 5.0F);
        values[3] = nan;
        DeviceVector<float> gate(values), up(numbers(516, 2)), dout(numbers(516, 3));
        set.kernels->training().silu_gate_backward(ConstFloats(*gate), ConstFloats(*up),
                                                   ConstFloats(*dout), slab_of(*up), slab_of(*dout),
                                                   *set.stream);
        set.stream->sync();
        up->insert(up->end(), dout->begin(), dout->end());
        return *up;
    };
    EXPECT_LE(worst_difference(emulated(run), on_host(run)), 2e-6);
}

class RopeBackwardOnCuda : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(RopeBackwardOnCuda, TurnsBackAsTheHostDoes) {
    const auto [heads, dim] = GetParam();
    const auto run = [heads = heads, dim = dim](HostSet& set) {
        const auto row = static_cast<std::size_t>(heads * dim);
        const auto half = static_cast<std::size_t>(dim / 2);
        DeviceVector<std::int32_t> positions({0, 1, 2, 0, 1, 8});
        DeviceVector<float> x(numbers(6 * row, 1)), cosines(numbers(9 * half, 2)),
            sines(numbers(9 * half, 3));
        set.kernels->training().rope_backward(*x, Ids(*positions), ConstFloats(*cosines),
                                              ConstFloats(*sines), heads, dim, *set.stream);
        set.stream->sync();
        return *x;
    };
    EXPECT_LE(worst_difference(emulated(run), on_host(run)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Heads, RopeBackwardOnCuda,
                         testing::Combine(testing::Values(1, 3, 9), testing::Values(2, 6, 64)));

TEST(RopeBackwardOnCudaTables, APositionOutsideThemPoisonsItsTokenAlone) {
    HostSet set = cuda_set();
    DeviceVector<std::int32_t> positions({0, 5, 1, -1});
    DeviceVector<float> x(numbers(4 * 8, 1)), cosines(numbers(5 * 4, 2)), sines(numbers(5 * 4, 3));
    set.kernels->training().rope_backward(*x, Ids(*positions), ConstFloats(*cosines),
                                          ConstFloats(*sines), 1, 8, *set.stream);
    for (std::size_t i = 0; i < x->size(); ++i) {
        EXPECT_EQ(std::isnan((*x)[i]), i / 8 % 2 == 1) << i;
    }
}

class WidthsOnCuda : public testing::TestWithParam<int> {};

TEST_P(WidthsOnCuda, EmbeddingSumsTheTokensOfEachIdInTheirOrder) {
    const auto wide = static_cast<std::size_t>(GetParam());
    std::vector<std::int32_t> tokens = {4, 9, 10, 3, 7, 0, 123456, -1, 7};
    for (std::int32_t t = 0; t < 400; ++t) { // an id in many of the blocks' rounds
        tokens.push_back(t % 3 == 0 ? 7 : 4 + t % 6);
    }
    for (const Into into : both_ways) {
        const auto run = [&](HostSet& set) {
            DeviceVector<std::int32_t> ids(tokens);
            DeviceVector<float> dx(numbers(tokens.size() * wide, 5)),
                dw(start_of(into, 7 * wide, 6)); // rows 4 .. 10; 11 has no token
            set.kernels->training().embed_backward(Ids(*ids), 4, ConstFloats(*dx), into, *dw,
                                                   GetParam(), *set.stream);
            set.stream->sync();
            return *dw;
        };
        EXPECT_TRUE(same_bits(emulated(run), on_host(run)));
    }
}

TEST_P(WidthsOnCuda, RowsTakenOutAreAddedWhereTheyWere) {
    const auto wide = static_cast<std::size_t>(GetParam());
    const auto run = [wide](HostSet& set) {
        DeviceVector<float> dy(numbers(3 * wide, 1)), dx(numbers(7 * wide, 2));
        DeviceVector<std::int32_t> rows({6, 0, 3});
        set.kernels->training().take_rows_backward(ConstFloats(*dy), Ids(*rows), *dx, GetParam(),
                                                   *set.stream);
        set.stream->sync();
        return *dx;
    };
    EXPECT_TRUE(same_bits(emulated(run), on_host(run)));
}

INSTANTIATE_TEST_SUITE_P(Widths, WidthsOnCuda, testing::Values(1, 5, 64, 576));

TEST(TakeRowsBackwardOnCuda, PassesOverRowsThatAreNotThere) {
    HostSet set = cuda_set();
    DeviceVector<float> dy(numbers(3 * 4, 1)), dx(std::vector<float>(3 * 4, 0.0F));
    DeviceVector<std::int32_t> rows({3, 2, -1});
    set.kernels->training().take_rows_backward(ConstFloats(*dy), Ids(*rows), *dx, 4, *set.stream);
    for (std::size_t i = 0; i < dx->size(); ++i) {
        EXPECT_EQ((*dx)[i], i / 4 == 2 ? (*dy)[i - 4] : 0.0F) << i;
    }
}

TEST(EmbedBackwardOnCuda, WithoutTokensClearsWhatItOverwrites) {
    HostSet set = cuda_set();
    DeviceVector<float> dw(numbers(8, 1));
    const std::vector<float> before = *dw;
    set.kernels->training().embed_backward({}, 0, {}, Into::add, *dw, 4, *set.stream);
    EXPECT_TRUE(same_bits(*dw, before));
    set.kernels->training().embed_backward({}, 0, {}, Into::overwrite, *dw, 4, *set.stream);
    EXPECT_TRUE(same_bits(*dw, std::vector<float>(8)));
}

} // namespace
} // namespace foregather::kernels
