// SPDX-License-Identifier: Apache-2.0
// Loading OpenBLAS with one thread and an agreed core type, and trying it before it is trusted.
#include "openblas.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <vector>

#include <dlfcn.h>
#include <strings.h>

#include <foregather/base/error.hpp>

namespace foregather::kernels {
namespace {

constexpr const char* library_file = "libopenblas.so.0";
constexpr const char* install_hint = "install OpenBLAS 0.3 (Debian package libopenblas0-pthread)";

int level_of(const std::string& core_level) {
    const auto found = std::find(core_levels.begin(), core_levels.end(), core_level);
    return static_cast<int>(found - core_levels.begin());
}

// The level whose instructions a core type needs. Types that are not listed need no more than
// SSE4.2, or are older AMD ones that OpenBLAS itself checks for.
std::string level_needed(const std::string& core_type) {
    const auto is = [&](const char* name) { return strcasecmp(core_type.c_str(), name) == 0; };
    if (is("SkylakeX") || is("Cooperlake") || is("SapphireRapids")) {
        return "SkylakeX";
    }
    if (is("Haswell") || is("Zen") || is("Excavator")) {
        return "Haswell";
    }
    return is("Prescott") ? "Prescott" : "Nehalem";
}

template <class Function>
Function symbol(void* library, const char* name) {
    void* address = dlsym(library, name);
    if (address == nullptr) {
        base::refuse(std::string(library_file) + " has no function " + name +
                     ", so it is not the " + "OpenBLAS that this program needs; " + install_hint);
    }
    return reinterpret_cast<Function>(address);
}

bool environment_names_core_type() {
    const char* variable = std::getenv("OPENBLAS_CORETYPE");
    return variable != nullptr && *variable != '\0';
}

void refuse_unless_runnable(const std::string& core_type, const std::string& asked_by) {
    if (level_of(level_needed(core_type)) > level_of(supported_core_level())) {
        base::refuse("product kernels of core type " + core_type + " were asked for" + asked_by +
                     ", but this processor can run no more than " + supported_core_level() +
                     "; choose that or unset OPENBLAS_CORETYPE");
    }
}

void* load_library() {
    void* library = dlopen(library_file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* reason = dlerror();
        base::refuse(std::string("cannot load ") + library_file +
                     ", which multiplies matrices on the host: " +
                     (reason == nullptr ? "no reason given" : reason) + "; " + install_hint);
    }
    return library;
}

// The library looks for the core type in the environment while it is being loaded, and only then:
// the variable is taken back, so that it always means what the user set.
void* load_library_for(const std::string& core_type) {
    if (core_type.empty()) {
        return load_library();
    }
    if (setenv("OPENBLAS_CORETYPE", core_type.c_str(), 1) != 0) {
        base::refuse("cannot set OPENBLAS_CORETYPE to choose product kernels");
    }
    void* library = load_library();
    unsetenv("OPENBLAS_CORETYPE");
    return library;
}

// openblas_get_config() begins "OpenBLAS 0.3.21 ...".
std::string version_in(const std::string& configuration) {
    std::istringstream words(configuration);
    std::string library, version;
    words >> library >> version;
    return version;
}

// Numbers in (-1, 1) that no power of two divides evenly, the same everywhere.
std::vector<float> trial_numbers(base::Elements n, std::uint32_t seed) {
    std::vector<float> numbers(static_cast<std::size_t>(n));
    for (float& x : numbers) {
        seed = seed * 1664525U + 1013904223U;
        x = static_cast<float>(seed >> 8) / 8388608.0F - 1.0F;
    }
    return numbers;
}

// The largest error of one product, in units of what rounding alone could explain.
double trial_error(const OpenBlas& blas, ProductSize size, bool transposed, float beta) {
    const auto [m, n, k] = size;
    const std::vector<float> a = trial_numbers(m * k, 1), b = trial_numbers(n * k, 2);
    const std::vector<float> before = trial_numbers(m * n, 3);
    std::vector<float> c = before;
    if (transposed) {
        blas.multiply_transposed(size, 1.0F, {a.data(), k}, {b.data(), k}, beta, {c.data(), n});
    } else {
        blas.multiply(size, {a.data(), k}, {b.data(), n}, beta, {c.data(), n});
    }
    double worst = 0;
    for (base::Elements i = 0; i < m * n; ++i) {
        const base::Elements row = i / n, column = i % n;
        double sum = beta * static_cast<double>(before[static_cast<std::size_t>(i)]);
        double magnitude = std::abs(sum);
        for (base::Elements j = 0; j < k; ++j) {
            const base::Elements in_b = transposed ? column * k + j : j * n + column;
            const double term = static_cast<double>(a[static_cast<std::size_t>(row * k + j)]) *
                                static_cast<double>(b[static_cast<std::size_t>(in_b)]);
            sum += term;
            magnitude += std::abs(term);
        }
        const double unit = magnitude * static_cast<double>(k + 1) * 6e-8;
        const double error = std::abs(c[static_cast<std::size_t>(i)] - sum) / unit;
        worst = error <= worst ? worst : error; // a NaN counts as the worst
    }
    return worst;
}

void try_products(const OpenBlas& blas) {
    constexpr std::array<ProductSize, 5> sizes = {
        {{1, 1, 1}, {3, 5, 7}, {17, 33, 65}, {64, 128, 64}, {129, 51, 259}}};
    for (const ProductSize size : sizes) {
        for (const bool transposed : {true, false}) {
            for (const float beta : {0.0F, 1.0F}) {
                const double error = trial_error(blas, size, transposed, beta);
                if (!(error <= 1.0)) {
                    base::refuse("the product kernels of " + blas.name() +
                                 " are wrong on this processor: [" + std::to_string(size.m) + ", " +
                                 std::to_string(size.k) + "] x [" + std::to_string(size.k) + ", " +
                                 std::to_string(size.n) + "] is off by " + std::to_string(error) +
                                 " times the rounding error; set " +
                                 "OPENBLAS_CORETYPE to another core type, e.g. Haswell");
                }
            }
        }
    }
}

} // namespace

std::string supported_core_level() {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512cd")) {
        return "SkylakeX";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return "Haswell";
    }
    return __builtin_cpu_supports("sse4.2") ? "Nehalem" : "Prescott";
}

OpenBlas::OpenBlas(const ProductChoice& choice) {
    const bool by_environment = environment_names_core_type();
    const std::string asked = by_environment ? std::getenv("OPENBLAS_CORETYPE") : choice.core_type;
    const std::string asked_by = by_environment ? " by OPENBLAS_CORETYPE" : "";
    if (!asked.empty()) {
        refuse_unless_runnable(asked, asked_by);
    }
    if (setenv("OPENBLAS_NUM_THREADS", "1", 1) != 0) {
        base::refuse("cannot set OPENBLAS_NUM_THREADS to keep OpenBLAS from starting threads");
    }
    void* library = load_library_for(by_environment ? "" : asked);
    symbol<void (*)(int)>(library, "openblas_set_num_threads")(1);
    const std::string core = symbol<char* (*)()>(library, "openblas_get_corename")();
    if (!asked.empty() && strcasecmp(asked.c_str(), core.c_str()) != 0) {
        base::refuse("product kernels of core type " + asked + " were asked for" + asked_by +
                     ", but " + library_file + " runs those of " + core +
                     ": it does not know that type, or was loaded before the choice was made");
    }
    sgemm_ = symbol<decltype(&cblas_sgemm)>(library, "cblas_sgemm");
    name_ = "OpenBLAS " + version_in(symbol<char* (*)()>(library, "openblas_get_config")()) + " " +
            core + (by_environment ? " (OPENBLAS_CORETYPE)" : "");
    try_products(*this);
}

void OpenBlas::multiply_transposed(ProductSize size, float alpha, Matrix<const float> a,
                                   Matrix<const float> b, float beta, Matrix<float> c) const {
    sgemm_(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(size.m),
           static_cast<int>(size.n), static_cast<int>(size.k), alpha, a.data,
           static_cast<int>(a.stride), b.data, static_cast<int>(b.stride), beta, c.data,
           static_cast<int>(c.stride));
}

void OpenBlas::multiply(ProductSize size, Matrix<const float> a, Matrix<const float> b, float beta,
                        Matrix<float> c) const {
    sgemm_(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(size.m),
           static_cast<int>(size.n), static_cast<int>(size.k), 1.0F, a.data,
           static_cast<int>(a.stride), b.data, static_cast<int>(b.stride), beta, c.data,
           static_cast<int>(c.stride));
}

} // namespace foregather::kernels
