// SPDX-License-Identifier: Apache-2.0
// Gradients of the RMS norm: emulated device kernels against the host's, over rows that a warp
// takes and rows that a block takes, one block of rows and many.
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "training_set.hpp"

namespace foregather::kernels {
namespace {

using base::DType;

struct Size {
    std::size_t rows, width;
};

// dx and dw, one behind the other.
std::vector<float> gradients(HostSet& set, const Size& n, DType type, Into into_dx, Into into_dw) {
    DeviceVector<float> x(numbers(n.rows * n.width, 1, 3.0F)), dy(numbers(n.rows * n.width, 2)),
        dx(start_of(into_dx, n.rows * n.width, 4)), dw(start_of(into_dw, n.width, 5));
    Numbers w(numbers(n.width, 3), type);
    set.kernels->training().rms_norm_backward(ConstFloats(*x), w.slab(), 1e-5F, ConstFloats(*dy),
                                              into_dx, *dx, into_dw, *dw, *set.stream);
    set.stream->sync();
    dx->insert(dx->end(), dw->begin(), dw->end());
    return *dx;
}

class NormBackwardOnCuda : public testing::TestWithParam<std::tuple<int, DType>> {};

TEST_P(NormBackwardOnCuda, IsTheHosts) {
    const auto [width, type] = GetParam();
    const Size n{width == 6 ? std::size_t{2500} : std::size_t{19}, static_cast<std::size_t>(width)};
    for (const Into into_dx : both_ways) {
        for (const Into into_dw : both_ways) {
            const auto run = [&, type = type](HostSet& set) {
                return gradients(set, n, type, into_dx, into_dw);
            };
            EXPECT_LE(worst_difference(emulated(run), on_host(run)), 2e-6);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Widths, NormBackwardOnCuda,
                         testing::Combine(testing::Values(1, 6, 64, 130, 1027, 1028),
                                          testing::Values(DType::f32, DType::bf16)));

TEST(NormBackwardOnCudaMemory, DxMayBeDy) {
    const auto run = [](HostSet& set) {
        DeviceVector<float> x(numbers(9 * 64, 1)), dx(numbers(9 * 64, 2)), dw(nothing_yet(64));
        Numbers w(numbers(64, 3), DType::f32);
        set.kernels->training().rms_norm_backward(ConstFloats(*x), w.slab(), 1e-5F,
                                                  ConstFloats(*dx), Into::overwrite, *dx,
                                                  Into::overwrite, *dw, *set.stream);
        set.stream->sync();
        dx->insert(dx->end(), dw->begin(), dw->end());
        return *dx;
    };
    EXPECT_LE(worst_difference(emulated(run), on_host(run)), 2e-6);
}

TEST(NormBackwardOnCudaMemory, MoreRowsThanTheScratchHoldsAreRefused) {
    HostSet set = cuda_set();
    std::vector<float> x((std::size_t{1} << 21) + 1), w(1), dw(1);
    EXPECT_NE(refusal_of([&] {
                  set.kernels->training().rms_norm_backward(ConstFloats(x), slab_of(w), 1e-5F,
                                                            ConstFloats(x), Into::overwrite, x,
                                                            Into::overwrite, dw, *set.stream);
              }).find("rms_norm_backward: needs"),
              std::string::npos);
}

} // namespace
} // namespace foregather::kernels
