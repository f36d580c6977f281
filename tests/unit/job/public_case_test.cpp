// SPDX-License-Identifier: Apache-2.0
// The public case: three inputs meet three figures of one case exactly, and the prediction of the
// other is what those inputs say, right or wrong.
#include <gtest/gtest.h>

#include "../../../src/job/plan_sweep.hpp"
#include "../../../src/job/public_case.hpp"

namespace foregather::job::test {
namespace {

TEST(PublicCase, IsFittedWithThreeInputsToThreeFigures) {
    const CaseFit fit = fit_case(without_offload);
    // 1.20 s more of compute in 4.81 s of overlap; 1.59 s of gathers took 4.81 s.
    EXPECT_NEAR(fit.contention.compute, 1.20 / 3.61, 1e-9);
    EXPECT_NEAR(fit.contention.collective, 4.81 / 1.59 - 1, 1e-9);
    // q x 2.99 + (1 - q) x 2.99 / 64 = 1.40
    EXPECT_NEAR(fit.alone, (1.40 - 2.99 / 64) / (2.99 - 2.99 / 64), 1e-6);
    const PredictedForward replayed = replay_case(2.99, 8.54, fit);
    EXPECT_NEAR(replayed.gather, 6.21, 1e-6);
    EXPECT_NEAR(replayed.exposed, 1.40, 1e-6);
    EXPECT_NEAR(replayed.compute, 9.74, 1e-6);
}

TEST(PublicCase, PredictsTheOtherCaseByTheSameInputs) {
    const CaseFit fit = fit_case(without_offload);
    const PredictedForward replayed = replay_case(3.10, 8.41, fit);
    const double exposed = 3.10 * 1.40 / 2.99; // the same share of all gathers
    EXPECT_NEAR(replayed.exposed, exposed, 1e-3);
    EXPECT_NEAR(replayed.gather, exposed + (3.10 - exposed) * 4.81 / 1.59, 1e-3);
    EXPECT_NEAR(replayed.compute, 8.41 + (3.10 - exposed) * 4.81 / 1.59 * 1.20 / 4.81, 1e-3);
    EXPECT_GT(replayed.forward(), with_offload.after()); // it is not met, and the text says so
    EXPECT_NE(public_case_text().find("cost less than this fit says"), std::string::npos);
}

TEST(PublicCase, ChecksSayWhatRowsTheyNeed) {
    EXPECT_EQ(published_checks_text({}, ""),
              "published checks: need plan.ranks with 8 and 128, plan.shards = 0\n");
    EXPECT_EQ(
        published_checks_text({}, "other.json is another model"),
        "published checks: none, they are of training Llama 3.1 8B on H100, and other.json is "
        "another model\n");
}

} // namespace
} // namespace foregather::job::test
