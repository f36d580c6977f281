// SPDX-License-Identifier: Apache-2.0
// Products against plain sums in double, across the edges of the grid, and the library's choice.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "host_set.hpp"

namespace foregather::kernels {
namespace {

struct Sizes {
    std::size_t tokens, in, out;
};

// y = start + bias + x w^T in double; a tolerance that rounding of `in` terms explains.
void expect_product(const Sizes& n, const std::vector<float>& x, const std::vector<float>& w,
                    const std::vector<float>& bias, const std::vector<float>& start,
                    const std::vector<float>& y) {
    double worst = 0;
    for (std::size_t t = 0; t < n.tokens; ++t) {
        for (std::size_t o = 0; o < n.out; ++o) {
            double sum = start.empty() ? 0.0 : static_cast<double>(start[t * n.out + o]);
            sum += bias.empty() ? 0.0 : static_cast<double>(bias[o]);
            for (std::size_t i = 0; i < n.in; ++i) {
                sum += static_cast<double>(x[t * n.in + i]) * static_cast<double>(w[o * n.in + i]);
            }
            const double error = std::abs(static_cast<double>(y[t * n.out + o]) - sum);
            worst = error <= worst ? worst : error;
        }
    }
    EXPECT_LT(worst, 1e-6 * std::sqrt(static_cast<double>(n.in)) + 1e-6)
        << n.tokens << " x " << n.in << " x " << n.out;
}

class EachLibrary : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Product, EachLibrary, testing::ValuesIn(libraries()), name_of_library);

TEST_P(EachLibrary, FollowsTheDefinitionAcrossTheGrid) {
    HostSet host(2, {GetParam(), ""});
    for (const Sizes n : {Sizes{1, 1, 1},
                          {1, 40, 51},
                          {3, 7, 5},
                          {127, 33, 97},
                          {129, 20, 769},
                          {300, 64, 1600},
                          {1023, 8, 3},
                          {1025, 9, 770}}) {
        const std::vector<float> x = numbers(n.tokens * n.in, 1), w = numbers(n.out * n.in, 2);
        const std::vector<float> bias = numbers(n.out, 3), start = numbers(n.tokens * n.out, 4);
        for (const bool with_bias : {false, true}) {
            for (const auto into : {Kernels::Into::overwrite, Kernels::Into::add}) {
                const bool add = into == Kernels::Into::add;
                std::vector<float> y =
                    add ? start : std::vector<float>(start.size(), std::nanf(""));
                const std::vector<float> offset = with_bias ? bias : std::vector<float>();
                host.kernels->product(slab_of(x), slab_of(w), slab_of(offset), into, y,
                                      static_cast<Elements>(n.tokens), *host.stream);
                host.stream->sync();
                expect_product(n, x, w, offset, add ? start : std::vector<float>(), y);
            }
        }
    }
}

TEST(Product, IsExactInALiteralCase) {
    HostSet host;
    const std::vector<float> x = {1, 2, 3, 4, 5, 6}, w = {1, 0, -1, 2, 2, 2}, bias = {10, 20};
    std::vector<float> y(4);
    host.kernels->product(slab_of(x), slab_of(w), slab_of(bias), Kernels::Into::overwrite, y, 2,
                          *host.stream);
    host.stream->sync();
    EXPECT_EQ(y, (std::vector<float>{8, 32, 8, 50}));
}

TEST_P(EachLibrary, HasTheSameBitsOnAnyNumberOfThreads) {
    for (const Sizes n : {Sizes{5, 40, 97}, {256, 57, 1600}, {1100, 30, 800}}) {
        const std::vector<float> x = numbers(n.tokens * n.in, 1), w = numbers(n.out * n.in, 2);
        std::vector<float> expected;
        for (const int threads : {1, 2, 3}) {
            HostSet host(threads, {GetParam(), ""});
            std::vector<float> y(n.tokens * n.out);
            host.kernels->product(slab_of(x), slab_of(w), {}, Kernels::Into::overwrite, y,
                                  static_cast<Elements>(n.tokens), *host.stream);
            host.stream->sync();
            expected = threads == 1 ? y : expected;
            EXPECT_EQ(y, expected) << threads << " threads";
        }
    }
}

// OPENBLAS_CORETYPE for the length of a test: `value`, or unset for "".
class CoreTypeInEnvironment {
public:
    explicit CoreTypeInEnvironment(const std::string& value) {
        const char* before = std::getenv(variable_);
        before_ = before == nullptr ? "" : before;
        set(value);
    }
    ~CoreTypeInEnvironment() { set(before_); }
    CoreTypeInEnvironment(const CoreTypeInEnvironment&) = delete;
    CoreTypeInEnvironment& operator=(const CoreTypeInEnvironment&) = delete;

private:
    void set(const std::string& value) const {
        value.empty() ? unsetenv(variable_) : setenv(variable_, value.c_str(), 1);
    }
    const char* variable_ = "OPENBLAS_CORETYPE";
    std::string before_;
};

// The last word of e.g. "OpenBLAS 0.3.21 Haswell". The library is loaded then, and its type stands.
std::string loaded_core_type() {
    HostSet host;
    const CoreTypeInEnvironment unset("");
    const std::string name = make_host_kernels(*host.device, 1, {})->product_name();
    return name.substr(name.rfind(' ') + 1);
}

TEST(Product, NamesItsLibrary) {
    HostSet host;
    const std::string name = host.kernels->product_name();
    EXPECT_EQ(name.rfind("OpenBLAS 0.", 0), 0U) << name;
    EXPECT_NE(name.find(' ' + loaded_core_type()), std::string::npos) << name;
    EXPECT_GT(loaded_core_type().size(), 2U);
}

TEST(Product, RefusesACoreTypeThatTheLibraryLacks) {
    HostSet host;
    const CoreTypeInEnvironment unset("");
    const std::string text = refusal_of(
        [&] {
            make_host_kernels(*host.device, 1, {"openblas", "Abacus"});
        },
        base::Status::refused);
    EXPECT_NE(text.find("core type Abacus"), std::string::npos) << text;
    EXPECT_NE(text.find("libopenblas.so.0"), std::string::npos) << text;
    EXPECT_EQ(std::getenv("OPENBLAS_CORETYPE"), nullptr);
}

TEST(Product, TakesTheCoreTypeThatIsAlreadyLoaded) {
    HostSet host;
    const std::string core = loaded_core_type();
    const CoreTypeInEnvironment unset("");
    const auto again = make_host_kernels(*host.device, 1, {"openblas", core});
    EXPECT_NE(again->product_name().find(core), std::string::npos);
}

TEST(Product, TheEnvironmentWinsAndIsNamed) {
    HostSet host;
    const std::string core = loaded_core_type();
    {
        const CoreTypeInEnvironment same(core);
        const auto kernels = make_host_kernels(*host.device, 1, {"openblas", "Abacus"});
        EXPECT_NE(kernels->product_name().find(core + " (OPENBLAS_CORETYPE)"), std::string::npos);
    }
    const CoreTypeInEnvironment other("Abacus");
    const std::string text = refusal_of(
        [&] {
            make_host_kernels(*host.device, 1, {"openblas", core});
        },
        base::Status::refused);
    EXPECT_NE(text.find("Abacus were asked for by OPENBLAS_CORETYPE"), std::string::npos) << text;
}

TEST(Product, KnowsALevelThatThisProcessorRuns) {
    const std::string level = supported_core_level();
    EXPECT_NE(std::find(core_levels.begin(), core_levels.end(), level), core_levels.end()) << level;
}

TEST(Product, NamesOneDnnAndItsInstructions) {
    HostSet host(1, {"onednn", ""});
    const std::string name = host.kernels->product_name();
    EXPECT_EQ(name.rfind("oneDNN ", 0), 0U) << name;
    EXPECT_NE(name.find_first_of("as", 7), std::string::npos) << name; // avx..., sse41
}

TEST(Product, RefusesALimitThatOneDnnDoesNotKnow) {
    HostSet host;
    setenv("ONEDNN_MAX_CPU_ISA", "ABACUS", 1);
    const std::string text = refusal_of(
        [&] {
            make_host_kernels(*host.device, 1, {"onednn", ""});
        },
        base::Status::refused);
    unsetenv("ONEDNN_MAX_CPU_ISA");
    EXPECT_NE(text.find("ONEDNN_MAX_CPU_ISA=ABACUS"), std::string::npos) << text;
}

TEST(Product, RefusesLevelsThatThisProcessorLacks) {
    if (supported_core_level() == core_levels.back()) {
        GTEST_SKIP() << "this processor runs all levels";
    }
    HostSet host;
    const std::string text = refusal_of(
        [&] {
            make_host_kernels(*host.device, 1, {"onednn", core_levels.back()});
        },
        base::Status::refused);
    EXPECT_NE(text.find(core_levels.back()), std::string::npos) << text;
}

TEST(Product, RefusesOperandsOfTwoTypes) {
    HostSet host;
    const std::vector<float> x(4), w(4);
    std::vector<float> y(4);
    ConstSlab half = slab_of(w);
    half.type = base::DType::bf16;
    const std::string text = refusal_of([&] {
        host.kernels->product(slab_of(x), half, {}, Kernels::Into::overwrite, y, 2, *host.stream);
    });
    EXPECT_NE(text.find("bf16"), std::string::npos) << text;
}

TEST(Product, RefusesAStreamWithMoreThreadsThanScratch) {
    HostSet host(1);
    const auto wide = device::make_host_device(2);
    const auto stream = wide->stream("wide", device::Priority::normal);
    const std::vector<float> x(4), w(4);
    std::vector<float> y(4);
    const std::string text = refusal_of([&] {
        host.kernels->product(slab_of(x), slab_of(w), {}, Kernels::Into::overwrite, y, 2, *stream);
    });
    EXPECT_NE(text.find("2 threads"), std::string::npos) << text;
}

} // namespace
} // namespace foregather::kernels
