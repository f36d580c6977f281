// SPDX-License-Identifier: Apache-2.0
// Products by OpenBLAS, loaded at run time with one thread and an agreed core type, since it picks
// its kernels while being loaded.
#include "products.hpp"

#include <strings.h>

#include <cstdlib>
#include <sstream>

#include <cblas.h>

#include <foregather/base/error.hpp>
#include <foregather/base/shared_library.hpp>

#include "core_levels.hpp"

namespace foregather::kernels {
namespace {

constexpr const char* library_file = "libopenblas.so.0";
constexpr const char* install_hint = "install OpenBLAS 0.3 (Debian package libopenblas0-pthread)";

class OpenBlas final : public Products {
public:
    explicit OpenBlas(const std::string& core_type);

    using Products::multiply;
    using Products::multiply_outer;
    using Products::multiply_transposed;
    void multiply_transposed(ProductSize size, float alpha, Matrix<const float> a,
                             Matrix<const float> b, float beta, Matrix<float> c) const override {
        run(CblasNoTrans, CblasTrans, size, alpha, a, b, beta, c);
    }
    void multiply(ProductSize size, Matrix<const float> a, Matrix<const float> b, float beta,
                  Matrix<float> c) const override {
        run(CblasNoTrans, CblasNoTrans, size, 1.0F, a, b, beta, c);
    }
    void multiply_outer(ProductSize size, Matrix<const float> a, Matrix<const float> b, float beta,
                        Matrix<float> c) const override {
        run(CblasTrans, CblasNoTrans, size, 1.0F, a, b, beta, c);
    }
    std::string name() const override { return name_; }

private:
    void run(CBLAS_TRANSPOSE a_as, CBLAS_TRANSPOSE b_as, ProductSize size, float alpha,
             Matrix<const float> a, Matrix<const float> b, float beta, Matrix<float> c) const {
        sgemm_(CblasRowMajor, a_as, b_as, static_cast<int>(size.m), static_cast<int>(size.n),
               static_cast<int>(size.k), alpha, a.data, static_cast<int>(a.stride), b.data,
               static_cast<int>(b.stride), beta, c.data, static_cast<int>(c.stride));
    }

    decltype(&cblas_sgemm) sgemm_ = nullptr;
    std::string name_;
};

// The level whose instructions a core type needs. Types that are not listed need no more than
// SSE4.2, or are older AMD ones that OpenBLAS itself checks for.
std::string level_needed(const std::string& core_type) {
    const auto is = [&](const char* name) { return strcasecmp(core_type.c_str(), name) == 0; };
    if (is("Cooperlake") || is("SapphireRapids")) {
        return "Cooperlake";
    }
    if (is("SkylakeX")) {
        return "SkylakeX";
    }
    if (is("Haswell") || is("Zen") || is("Excavator")) {
        return "Haswell";
    }
    return is("Prescott") ? "Prescott" : "Nehalem";
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

// The library looks for the core type in the environment while it is being loaded, and only then:
// the variable is taken back, so that it always means what the user set.
base::SharedLibrary load_library_for(const std::string& core_type) {
    if (core_type.empty()) {
        return {library_file, library_purpose, install_hint};
    }
    if (setenv("OPENBLAS_CORETYPE", core_type.c_str(), 1) != 0) {
        base::refuse("cannot set OPENBLAS_CORETYPE to choose product kernels");
    }
    base::SharedLibrary library(library_file, library_purpose, install_hint);
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

OpenBlas::OpenBlas(const std::string& core_type) {
    const bool by_environment = environment_names_core_type();
    const std::string asked = by_environment ? std::getenv("OPENBLAS_CORETYPE") : core_type;
    const std::string asked_by = by_environment ? " by OPENBLAS_CORETYPE" : "";
    if (!asked.empty()) {
        refuse_unless_runnable(asked, asked_by);
    }
    if (setenv("OPENBLAS_NUM_THREADS", "1", 1) != 0) {
        base::refuse("cannot set OPENBLAS_NUM_THREADS to keep OpenBLAS from starting threads");
    }
    const base::SharedLibrary library = load_library_for(by_environment ? "" : asked);
    library.function<void (*)(int)>("openblas_set_num_threads")(1);
    const std::string core = library.function<char* (*)()>("openblas_get_corename")();
    // Builds that lack the one name have its fp32 kernels under the other.
    const bool same_kernels = asked == "Cooperlake" && core == "SkylakeX";
    if (!asked.empty() && !same_kernels && strcasecmp(asked.c_str(), core.c_str()) != 0) {
        base::refuse("product kernels of core type " + asked + " were asked for" + asked_by +
                     ", but " + library_file + " runs those of " + core +
                     ": it does not know that type, or was loaded before the choice was made");
    }
    sgemm_ = library.function<decltype(&cblas_sgemm)>("cblas_sgemm");
    name_ = "OpenBLAS " + version_in(library.function<char* (*)()>("openblas_get_config")()) + " " +
            core + (by_environment ? " (OPENBLAS_CORETYPE)" : "");
}

} // namespace

std::unique_ptr<Products> make_openblas(const std::string& core_type) {
    auto products = std::make_unique<OpenBlas>(core_type);
    try_products(*products, "set OPENBLAS_CORETYPE to another core type, e.g. Haswell");
    return products;
}

} // namespace foregather::kernels
