// SPDX-License-Identifier: Apache-2.0
// AdamW and what is done with gradients before it: emulated device kernels against the host's.
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "training_set.hpp"

namespace foregather::kernels {
namespace {

using base::DType;

class EntriesOnCuda : public testing::TestWithParam<int> {
protected:
    std::size_t n_ = static_cast<std::size_t>(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Counts, EntriesOnCuda, testing::Values(1, 4, 1023, 5000));

// w, m, v and the copy, one behind the other, after some steps.
std::vector<float> after_steps(HostSet& set, std::size_t n, DType copy_type, bool copies) {
    DeviceVector<float> w(numbers(n, 1)), m(std::vector<float>(n, 0.0F)),
        v(std::vector<float>(n, 0.0F));
    Numbers copy(nothing_yet(copies ? n : 0), copy_type);
    for (std::int64_t step = 1; step <= 3; ++step) {
        DeviceVector<float> g(numbers(n, static_cast<std::uint32_t>(step + 7)));
        AdamwStep adamw{1e-2};
        adamw.weight_decay = 0.1;
        adamw.step = step;
        adamw.gradient_scale = 0.7;
        set.kernels->training().adamw(*w, ConstFloats(*g), *m, *v, adamw, copy.slab(), *set.stream);
        set.stream->sync();
    }
    std::vector<float> all = *w;
    for (const std::vector<float>& more : {*m, *v, copy.values()}) {
        all.insert(all.end(), more.begin(), more.end());
    }
    return all;
}

TEST_P(EntriesOnCuda, AdamwStepsAsTheHostDoes) {
    for (const DType type : both_types) {
        for (const bool copies : {false, true}) {
            const auto run = [&](HostSet& set) { return after_steps(set, n_, type, copies); };
            EXPECT_LE(worst_difference(emulated(run), on_host(run)),
                      type == DType::f32 || !copies ? 1e-6 : bf16_step);
        }
    }
}

TEST_P(EntriesOnCuda, AreAddedScaledAndClearedAsTheHostDoes) {
    for (const DType type : both_types) {
        const auto run = [&](HostSet& set) {
            Numbers x(numbers(n_, 1), type);
            DeviceVector<float> sum(numbers(n_, 2)), cleared(nothing_yet(n_));
            set.kernels->training().add(x.slab(), *sum, *set.stream);
            set.kernels->training().scale(*sum, 0.3F, *set.stream);
            set.kernels->training().clear(*cleared, *set.stream);
            set.stream->sync();
            sum->insert(sum->end(), cleared->begin(), cleared->end());
            return *sum;
        };
        EXPECT_TRUE(same_bits(emulated(run), on_host(run))) << base::name_of(type);
    }
}

TEST(SumOfSquaresOnCuda, IsTheHostsOverSeveralBlocksAndNone) {
    for (const std::size_t n : {0U, 1U, 4U, 4099U, 40000U}) {
        for (const Into into : both_ways) {
            const auto run = [&](HostSet& set) {
                DeviceVector<float> x(numbers(n, 1));
                DeviceVector<double> sum(std::vector<double>(1, into == Into::add ? 3.0 : nan));
                set.kernels->training().sum_of_squares(ConstFloats(*x), into, *sum, *set.stream);
                set.stream->sync();
                return *sum;
            };
            const double cuda = emulated(run)[0], host = on_host(run)[0];
            EXPECT_NEAR(cuda, host, 1e-13 * host) << n;
        }
    }
}

TEST(SumOfSquaresOnCuda, IsNoNumberAsSoonAsAnEntryIsNone) {
    HostSet set = cuda_set();
    std::vector<float> values = numbers(20000, 1);
    values[19000] = nan;
    DeviceVector<float> x(values);
    DeviceVector<double> sum(std::vector<double>(1, 0.0));
    set.kernels->training().sum_of_squares(ConstFloats(*x), Into::add, *sum, *set.stream);
    EXPECT_TRUE(std::isnan((*sum)[0]));
}

} // namespace
} // namespace foregather::kernels
