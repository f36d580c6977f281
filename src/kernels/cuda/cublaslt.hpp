// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's functions, found when they are needed, and its descriptors as owned handles. A program
// that computes on the host neither loads nor needs the library.
#pragma once

#include <string>

#include <cublasLt.h>

#include <foregather/base/error.hpp>

namespace foregather::kernels {

struct CublasLt {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtGetVersion) version;
    decltype(&cublasLtGetStatusString) status_string;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmulAlgoConfigGetAttribute) algorithm_attribute;
    decltype(&cublasLtMatmul) matmul;

    // Throws Error(failed) unless rc is CUBLAS_STATUS_SUCCESS. `attempted` completes "cuBLASLt
    // failed to ...".
    void check(cublasStatus_t rc, const std::string& attempted,
               base::Where where = base::Where::here()) const;
};

// Loaded on the first call, for good. Throws Error(refused) with the loader's reason.
const CublasLt& cublaslt();

struct LtCloser {
    static cublasLtHandle_t null() { return nullptr; }
    void operator()(cublasLtHandle_t handle) const noexcept;
};
struct LtDescCloser {
    static cublasLtMatmulDesc_t null() { return nullptr; }
    void operator()(cublasLtMatmulDesc_t desc) const noexcept;
};
struct LtLayoutCloser {
    static cublasLtMatrixLayout_t null() { return nullptr; }
    void operator()(cublasLtMatrixLayout_t layout) const noexcept;
};
struct LtPreferenceCloser {
    static cublasLtMatmulPreference_t null() { return nullptr; }
    void operator()(cublasLtMatmulPreference_t preference) const noexcept;
};
using LtHandle = base::Unique<cublasLtHandle_t, LtCloser>;
using LtDesc = base::Unique<cublasLtMatmulDesc_t, LtDescCloser>;
using LtLayout = base::Unique<cublasLtMatrixLayout_t, LtLayoutCloser>;
using LtPreference = base::Unique<cublasLtMatmulPreference_t, LtPreferenceCloser>;

} // namespace foregather::kernels
