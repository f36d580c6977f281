// SPDX-License-Identifier: Apache-2.0
// Learning rates and clipping against PyTorch's numbers.
#include "../../../src/job/learning_rate.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace foregather::job {
namespace {

constexpr LearningRate of(Schedule schedule, std::int64_t warmup = 4) {
    return {schedule, 1e-3, 1e-4, warmup, 8 + warmup};
}

void expect_rates(const LearningRate& rate, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(learning_rate(rate, static_cast<std::int64_t>(i) + 1), expected[i], 1e-15)
            << "step " << i + 1;
    }
}

// torch.optim.lr_scheduler.CosineAnnealingLR(T_max=8, eta_min=1e-4) from 1e-3.
TEST(LearningRate, cosine_goes_from_peak_to_min_after_the_warm_up) {
    expect_rates(of(Schedule::cosine),
                 {0.00025, 0.0005, 0.00075, 0.001, //
                  0.001, 0.0009657457896300791, 0.000868198051533946, 0.0007222075445642904,
                  0.00055, 0.0003777924554357095, 0.00023180194846605366, 0.00013425421036992098});
    EXPECT_EQ(learning_rate(of(Schedule::cosine), 13), 1e-4);
    EXPECT_EQ(learning_rate(of(Schedule::cosine), 1000), 1e-4);
}

// torch.optim.lr_scheduler.LinearLR(1.0, 0.1, total_iters=8) from 1e-3.
TEST(LearningRate, linear_goes_from_peak_to_min_after_the_warm_up) {
    expect_rates(of(Schedule::linear), {0.00025, 0.0005, 0.00075, 0.001, 0.001, 0.0008875, 0.000775,
                                        0.0006625, 0.00055, 0.0004375, 0.000325, 0.0002125});
    EXPECT_NEAR(learning_rate(of(Schedule::linear), 14), 1e-4, 1e-18);
}

TEST(LearningRate, constant_stays_at_the_peak_after_the_warm_up) {
    expect_rates(of(Schedule::constant, 2), {0.0005, 0.001, 0.001, 0.001});
    EXPECT_EQ(learning_rate(of(Schedule::constant), 1000), 1e-3);
}

TEST(LearningRate, without_warm_up_the_first_step_has_the_peak) {
    for (const Schedule schedule : {Schedule::constant, Schedule::cosine, Schedule::linear}) {
        EXPECT_EQ(learning_rate(of(schedule, 0), 1), 1e-3);
    }
}

TEST(LearningRate, warm_up_as_long_as_the_run_ends_at_the_peak) {
    const LearningRate rate{Schedule::cosine, 1e-3, 0, 5, 5};
    EXPECT_EQ(learning_rate(rate, 5), 1e-3);
    EXPECT_EQ(learning_rate(rate, 1), 2e-4);
}

TEST(Clipping, scales_down_to_the_limit_and_never_up) {
    EXPECT_NEAR(clip_scale(5.0, 1.0) * 3.0, 0.59999988, 1e-9);
    EXPECT_EQ(clip_scale(0.5, 1.0), 1.0);
    EXPECT_EQ(clip_scale(0.0, 1.0), 1.0);
    EXPECT_EQ(clip_scale(1e30, 0.0), 1.0); // off
}

} // namespace
} // namespace foregather::job
