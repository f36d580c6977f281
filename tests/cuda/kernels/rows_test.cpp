// SPDX-License-Identifier: Apache-2.0
// Norm, embedding, RoPE, gate and rows taken out: emulated device kernels against the host's, over
// widths that vectors of four cut evenly and widths that they do not.
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_set.hpp"

namespace foregather::kernels {
namespace {

using base::DType;

class RowsOnCuda : public testing::TestWithParam<std::tuple<int, DType, DType>> {};

TEST_P(RowsOnCuda, NormIsTheHosts) {
    const auto [width, w_type, y_type] = GetParam();
    const auto run = [&, width = width, w_type = w_type, y_type = y_type](HostSet& set) {
        const std::size_t rows = 11, wide = static_cast<std::size_t>(width);
        DeviceVector<float> x(numbers(rows * wide, 1, 3.0F));
        Numbers w(numbers(wide, 2), w_type), y(std::vector<float>(rows * wide, nan), y_type);
        set.kernels->rms_norm(ConstFloats(*x), w.slab(), 1e-5F, y.slab(), *set.stream);
        set.stream->sync();
        return y.values();
    };
    const double tolerance = y_type == DType::f32 ? 1e-6 : bf16_step;
    EXPECT_LE(worst_difference(emulated(run), on_host(run)), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Widths, RowsOnCuda,
                         testing::Combine(testing::Values(1, 2, 7, 64, 130, 576, 1024, 1027, 4096),
                                          testing::Values(DType::f32, DType::bf16),
                                          testing::Values(DType::f32, DType::bf16)));

TEST(NormOnCuda, MayOverwriteItsInputAndKeepsNan) {
    const auto run = [](HostSet& set) {
        std::vector<float> start = numbers(5 * 64, 1);
        start[70] = nan;
        DeviceVector<float> x(start);
        Numbers w(numbers(64, 2), DType::f32);
        set.kernels->rms_norm(ConstFloats(*x), w.slab(), 1e-5F, slab_of(*x), *set.stream);
        set.stream->sync();
        return *x;
    };
    EXPECT_LE(worst_difference(emulated(run), on_host(run)), 1e-6);
}

class EmbedOnCuda : public testing::TestWithParam<std::tuple<int, DType>> {};

TEST_P(EmbedOnCuda, TakesTheRowsOfItsPieceAndLeavesOthersAlone) {
    const auto [width, type] = GetParam();
    const auto run = [width = width, type = type](HostSet& set) {
        const std::size_t wide = static_cast<std::size_t>(width);
        DeviceVector<std::int32_t> ids({4, 9, 10, 3, 7, 0, 123456, -1, 7});
        DeviceVector<float> x(numbers(9 * wide, 5));
        Numbers w(numbers(6 * wide, 6), type); // rows 4 .. 9
        set.kernels->embed(Ids(*ids), 4, w.slab(), *x, width, *set.stream);
        set.stream->sync();
        return *x;
    };
    EXPECT_TRUE(same_bits(emulated(run), on_host(run)));
}

INSTANTIATE_TEST_SUITE_P(Widths, EmbedOnCuda,
                         testing::Combine(testing::Values(1, 6, 64, 576, 1030),
                                          testing::Values(DType::f32, DType::bf16)));

class RopeOnCuda : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(RopeOnCuda, TurnsAsTheHostDoes) {
    const auto [heads, dim] = GetParam();
    const auto run = [heads = heads, dim = dim](HostSet& set) {
        const std::size_t row = static_cast<std::size_t>(heads * dim);
        const std::size_t half = static_cast<std::size_t>(dim / 2);
        DeviceVector<std::int32_t> positions({0, 1, 2, 0, 1, 8});
        DeviceVector<float> x(numbers(6 * row, 1)), cosines(numbers(9 * half, 2)),
            sines(numbers(9 * half, 3));
        set.kernels->rope(*x, Ids(*positions), ConstFloats(*cosines), ConstFloats(*sines), heads,
                          dim, *set.stream);
        set.stream->sync();
        return *x;
    };
    EXPECT_LE(worst_difference(emulated(run), on_host(run)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Heads, RopeOnCuda,
                         testing::Combine(testing::Values(1, 3, 9),
                                          testing::Values(2, 6, 64, 128)));

TEST(RopeOnCudaTables, APositionOutsideThemPoisonsItsTokenAlone) {
    HostSet set = cuda_set();
    DeviceVector<std::int32_t> positions({0, 5, 1, -1});
    DeviceVector<float> x(numbers(4 * 8, 1)), cosines(numbers(5 * 4, 2)), sines(numbers(5 * 4, 3));
    set.kernels->rope(*x, Ids(*positions), ConstFloats(*cosines), ConstFloats(*sines), 1, 8,
                      *set.stream);
    for (std::size_t i = 0; i < x->size(); ++i) {
        EXPECT_EQ(std::isnan((*x)[i]), i / 8 % 2 == 1) << i;
    }
}

class GateOnCuda : public testing::TestWithParam<std::tuple<int, DType>> {};

TEST_P(GateOnCuda, GatesAsTheHostDoes) {
    const auto [n, type] = GetParam();
    const auto run = [n = n, type = type](HostSet& set) {
        std::vector<float> values = numbers(static_cast<std::size_t>(n), 1, 12.0F);
        values.front() = -200.0F;
        values.back() = nan;
        DeviceVector<float> gate(values), up(numbers(static_cast<std::size_t>(n), 2));
        Numbers out(std::vector<float>(static_cast<std::size_t>(n), nan), type);
        set.kernels->silu_gate(ConstFloats(*gate), ConstFloats(*up), out.slab(), *set.stream);
        set.stream->sync();
        return out.values();
    };
    EXPECT_LE(worst_difference(emulated(run), on_host(run)), type == DType::f32 ? 1e-6 : bf16_step);
}

INSTANTIATE_TEST_SUITE_P(Counts, GateOnCuda,
                         testing::Combine(testing::Values(1, 3, 4, 1023, 4096, 5001),
                                          testing::Values(DType::f32, DType::bf16)));

TEST(GateOnCudaInPlace, OutMayBeTheGate) {
    const auto run = [](HostSet& set) {
        DeviceVector<float> gate(numbers(515, 1, 5.0F)), up(numbers(515, 2));
        set.kernels->silu_gate(ConstFloats(*gate), ConstFloats(*up), slab_of(*gate), *set.stream);
        set.stream->sync();
        return *gate;
    };
    EXPECT_LE(worst_difference(emulated(run), on_host(run)), 1e-6);
}

class TakeRowsOnCuda : public testing::TestWithParam<int> {};

TEST_P(TakeRowsOnCuda, CopiesRows) {
    const auto run = [](HostSet& set) {
        const std::size_t width = static_cast<std::size_t>(GetParam());
        DeviceVector<float> x(numbers(7 * width, 1)), y(std::vector<float>(4 * width, nan));
        DeviceVector<std::int32_t> rows({6, 0, 3, 3});
        set.kernels->take_rows(ConstFloats(*x), Ids(*rows), *y, GetParam(), *set.stream);
        set.stream->sync();
        return *y;
    };
    EXPECT_TRUE(same_bits(emulated(run), on_host(run)));
}

INSTANTIATE_TEST_SUITE_P(Widths, TakeRowsOnCuda, testing::Values(1, 5, 64, 576));

TEST(TakeRowsOnCudaIds, ARowThatIsNotThereBecomesNan) {
    HostSet set = cuda_set();
    DeviceVector<float> x(numbers(3 * 4, 1)), y(std::vector<float>(3 * 4, 0.0F));
    DeviceVector<std::int32_t> rows({3, 2, -1});
    set.kernels->take_rows(ConstFloats(*x), Ids(*rows), *y, 4, *set.stream);
    for (std::size_t i = 0; i < y->size(); ++i) {
        EXPECT_EQ(std::isnan((*y)[i]), i / 4 != 1) << i;
    }
}

} // namespace
} // namespace foregather::kernels
