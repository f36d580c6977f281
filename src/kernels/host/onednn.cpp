// SPDX-License-Identifier: Apache-2.0
// Products by oneDNN, loaded at run time. Its plain matrix products are used, which versions 2 and
// 3 share; bf16 ones are exported by the library but not in its headers, so their absence is borne.
#include "products.hpp"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include <foregather/base/error.hpp>
#include <foregather/base/shared_library.hpp>

#include "core_levels.hpp"

namespace foregather::kernels {
namespace {

using Dim = std::int64_t; // dnnl_dim_t
// C = alpha op(A) op(B) + beta C, row-major; transposition as a letter. 0 is success.
template <class T>
using Gemm = int (*)(char, char, Dim, Dim, Dim, float, const T*, Dim, const T*, Dim, float, float*,
                     Dim);
struct Version { // the beginning of dnnl_version_t
    int major, minor, patch;
};

constexpr std::array library_files = {"libdnnl.so.3", "libdnnl.so.2"};
constexpr const char* install_hint =
    "install oneDNN (Debian package libdnnl-dev), or set device.products = openblas";

// dnnl_cpu_isa_t of each of core_levels; what a later one adds are bits.
struct Isa {
    const char* name;
    int value;
};
constexpr std::array<Isa, core_levels.size()> isas = {{{"sse41", 0x1},
                                                       {"sse41", 0x1},
                                                       {"avx2", 0x7},
                                                       {"avx512_core", 0x27},
                                                       {"avx512_core_bf16", 0xe7}}};

base::SharedLibrary load() {
    for (const char* file : library_files) {
        if (void* probe = dlopen(file, RTLD_NOW | RTLD_LOCAL); probe != nullptr) {
            return {file, library_purpose, install_hint};
        }
    }
    return {library_files.back(), library_purpose, install_hint};
}

class OneDnn final : public Products {
public:
    explicit OneDnn(const std::string& core_type);

    bool multiplies_bf16() const override { return bf16_ != nullptr; }
    void multiply_transposed(ProductSize size, float alpha, Matrix<const float> a,
                             Matrix<const float> b, float beta, Matrix<float> c) const override {
        run(fp32_, 'N', 'T', size, alpha, a, b, beta, c);
    }
    void multiply(ProductSize size, Matrix<const float> a, Matrix<const float> b, float beta,
                  Matrix<float> c) const override {
        run(fp32_, 'N', 'N', size, 1.0F, a, b, beta, c);
    }
    void multiply_transposed(ProductSize size, float alpha, Matrix<const Bf16> a,
                             Matrix<const Bf16> b, float beta, Matrix<float> c) const override {
        run(bf16_, 'N', 'T', size, alpha, a, b, beta, c);
    }
    void multiply(ProductSize size, Matrix<const Bf16> a, Matrix<const Bf16> b, float beta,
                  Matrix<float> c) const override {
        run(bf16_, 'N', 'N', size, 1.0F, a, b, beta, c);
    }
    void multiply_outer(ProductSize size, Matrix<const float> a, Matrix<const float> b, float beta,
                        Matrix<float> c) const override {
        run(fp32_, 'T', 'N', size, 1.0F, a, b, beta, c);
    }
    void multiply_outer(ProductSize size, Matrix<const Bf16> a, Matrix<const Bf16> b, float beta,
                        Matrix<float> c) const override {
        run(bf16_, 'T', 'N', size, 1.0F, a, b, beta, c);
    }
    std::string name() const override { return name_; }

private:
    template <class T>
    void run(Gemm<T> gemm, char a_as, char b_as, ProductSize size, float alpha, Matrix<const T> a,
             Matrix<const T> b, float beta, Matrix<float> c) const {
        // OpenMP's number of threads belongs to the calling thread: each says 1 once.
        thread_local const bool alone = (set_threads_(1), true);
        static_cast<void>(alone);
        const int rc = gemm(a_as, b_as, size.m, size.n, size.k, alpha, a.data, a.stride, b.data,
                            b.stride, beta, c.data, c.stride);
        if (rc != 0) {
            base::fail(name_ + " failed to multiply [" + std::to_string(size.m) + ", " +
                       std::to_string(size.k) + "] x [" + std::to_string(size.k) + ", " +
                       std::to_string(size.n) + "]: status " + std::to_string(rc));
        }
    }

    Gemm<float> fp32_ = nullptr;
    Gemm<Bf16> bf16_ = nullptr;
    void (*set_threads_)(int) = nullptr;
    std::string name_;
};

// The variable by which a user limits oneDNN's kernels; "" if none is set.
std::string limiting_variable() {
    for (const char* variable : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
        const char* value = std::getenv(variable);
        if (value != nullptr && *value != '\0') {
            return std::string(variable) + "=" + value;
        }
    }
    return "";
}

// A value that the library does not know it passes over in silence.
void refuse_unknown(const std::string& assignment) {
    constexpr std::array known = {"ALL",
                                  "DEFAULT",
                                  "SSE41",
                                  "AVX",
                                  "AVX2",
                                  "AVX2_VNNI",
                                  "AVX2_VNNI_2",
                                  "AVX512_CORE",
                                  "AVX512_CORE_VNNI",
                                  "AVX512_CORE_BF16",
                                  "AVX512_CORE_FP16",
                                  "AVX512_CORE_AMX",
                                  "AVX512_CORE_AMX_FP16"};
    const std::string value = assignment.substr(assignment.find('=') + 1);
    if (std::none_of(known.begin(), known.end(),
                     [&](const char* name) { return strcasecmp(value.c_str(), name) == 0; })) {
        base::refuse(assignment + ": oneDNN knows no such instructions; AVX2 and AVX512_CORE are "
                                  "among those that it knows");
    }
}

OneDnn::OneDnn(const std::string& core_type) {
    const base::SharedLibrary library = load();
    const std::string level = core_type.empty() ? supported_core_level() : core_type;
    if (level_of(level) > level_of(supported_core_level())) {
        base::refuse("product kernels of core type " + level +
                     " were asked for, but this processor can run no more than " +
                     supported_core_level());
    }
    const Isa isa = isas.at(static_cast<std::size_t>(level_of(level)));
    const std::string limit = limiting_variable();
    if (!limit.empty()) {
        refuse_unknown(limit);
    } else { // fails after the first product of the process, then its limit stands
        library.function<int (*)(int)>("dnnl_set_max_cpu_isa")(isa.value);
    }
    const auto effective = library.function<int (*)()>("dnnl_get_effective_cpu_isa")();
    const auto* version = library.function<const Version* (*)()>("dnnl_version")();
    fp32_ = library.function<Gemm<float>>("dnnl_sgemm");
    set_threads_ = library.function<void (*)(int)>("omp_set_num_threads");
    constexpr int bf16_isa = isas.back().value;
    if ((effective & bf16_isa) == bf16_isa) {
        bf16_ = library.find<Gemm<Bf16>>("dnnl_gemm_bf16bf16f32");
    }
    name_ = "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) +
            "." + std::to_string(version->patch) + " ";
    std::string in_words = "isa " + std::to_string(effective);
    for (const Isa& known : isas) {
        in_words = known.value == effective ? known.name : in_words;
    }
    name_ += in_words + (limit.empty() ? "" : " (" + limit + ")");
}

} // namespace

bool onednn_can_be_loaded() {
    try {
        const base::SharedLibrary library = load();
        return library.find<void (*)(int)>("omp_set_num_threads") != nullptr &&
               library.find<Gemm<float>>("dnnl_sgemm") != nullptr;
    } catch (const base::Error&) {
        return false;
    }
}

std::unique_ptr<Products> make_onednn(const std::string& core_type) {
    auto products = std::make_unique<OneDnn>(core_type);
    try_products(*products, "set device.products = openblas");
    return products;
}

} // namespace foregather::kernels
