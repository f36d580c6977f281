// SPDX-License-Identifier: Apache-2.0
// Loading cuBLASLt, its errors in words, and the end of its handles.
#include "cublaslt.hpp"

#include <cstdio>

#include <library_types.h>

#include <foregather/base/shared_library.hpp>

namespace foregather::kernels {
namespace {

CublasLt load() {
    // The library of the headers' major version: another may lay out its structures otherwise.
    const base::SharedLibrary library(
        "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR), "multiplies matrices on the GPU",
        "install cuBLAS " + std::to_string(CUBLAS_VER_MAJOR) +
            ", put its folder on LD_LIBRARY_PATH, or use device.kind = host");
    CublasLt lt{};
    const auto find = [&](auto& function, const char* name) {
        function = library.function<std::remove_reference_t<decltype(function)>>(name);
    };
    find(lt.create, "cublasLtCreate");
    find(lt.destroy, "cublasLtDestroy");
    find(lt.version, "cublasLtGetVersion");
    find(lt.status_string, "cublasLtGetStatusString");
    find(lt.desc_create, "cublasLtMatmulDescCreate");
    find(lt.desc_destroy, "cublasLtMatmulDescDestroy");
    find(lt.desc_set, "cublasLtMatmulDescSetAttribute");
    find(lt.layout_create, "cublasLtMatrixLayoutCreate");
    find(lt.layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(lt.preference_create, "cublasLtMatmulPreferenceCreate");
    find(lt.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(lt.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(lt.algorithm_attribute, "cublasLtMatmulAlgoConfigGetAttribute");
    find(lt.matmul, "cublasLtMatmul");
    return lt;
}

// Destructors tell and go on.
void told(cublasStatus_t rc, const char* what) noexcept {
    if (rc != CUBLAS_STATUS_SUCCESS) {
        std::fprintf(stderr, "foregather: cuBLASLt failed to free %s: %s\n", what,
                     cublaslt().status_string(rc));
    }
}

} // namespace

const CublasLt& cublaslt() {
    static const CublasLt loaded = load();
    return loaded;
}

void CublasLt::check(cublasStatus_t rc, const std::string& attempted, base::Where where) const {
    if (rc != CUBLAS_STATUS_SUCCESS) {
        throw base::Error(base::Status::failed,
                          "cuBLASLt failed to " + attempted + ": " + status_string(rc), where);
    }
}

void LtCloser::operator()(cublasLtHandle_t handle) const noexcept {
    told(cublaslt().destroy(handle), "its handle");
}
void LtDescCloser::operator()(cublasLtMatmulDesc_t desc) const noexcept {
    told(cublaslt().desc_destroy(desc), "a description");
}
void LtLayoutCloser::operator()(cublasLtMatrixLayout_t layout) const noexcept {
    told(cublaslt().layout_destroy(layout), "a layout");
}
void LtPreferenceCloser::operator()(cublasLtMatmulPreference_t preference) const noexcept {
    told(cublaslt().preference_destroy(preference), "a preference");
}

} // namespace foregather::kernels
