// SPDX-License-Identifier: Apache-2.0
// Handles, attributes and messages of the test double of cuBLASLt, behind the real symbols. What
// it does not model it refuses; products are computed elsewhere. Tests only.
#include "cublaslt.hpp"

#include <cstring>
#include <string>

#include "call.hpp"

using namespace foregather::emulation;

namespace {

struct Handle {
    int device = 0;
};

cublasStatus_t refused(const std::string& what) {
    not_modelled(what);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

template <typename Made, typename Out>
cublasStatus_t create(const char* function, Out* handle, const Made& made) {
    if (fails_now(function)) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *handle = reinterpret_cast<Out>(new Made(made));
    return CUBLAS_STATUS_SUCCESS;
}

template <typename Made, typename Out>
cublasStatus_t destroy(const char* function, Out handle) {
    if (fails_now(function)) {
        return CUBLAS_STATUS_INTERNAL_ERROR;
    }
    delete reinterpret_cast<Made*>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

// Takes an attribute's value if its size is the documented one.
template <typename Value>
cublasStatus_t take(Value& into, const void* data, std::size_t bytes) {
    static_assert(sizeof(Value) == 4 || sizeof(Value) == 8);
    if (data == nullptr || bytes != sizeof(Value)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    std::memcpy(&into, data, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

// Takes one that may have a single value here.
cublasStatus_t take_only(std::int32_t only, const void* data, std::size_t bytes, const char* what) {
    std::int32_t value = 0;
    const cublasStatus_t status = take(value, data, bytes);
    return status == CUBLAS_STATUS_SUCCESS && value != only ? refused(what) : status;
}

} // namespace

extern "C" {

void openblas_set_num_threads(int threads); // not in every header of that name

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    if (fails_now(__func__)) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    Engine& the = engine();
    const Lock lock(the.mutex);
    if (usable(the, current_device()) != cudaSuccess) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    openblas_set_num_threads(1); // each stream multiplies on its own thread
    *handle = reinterpret_cast<cublasLtHandle_t>(new Handle{current_device()});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return destroy<Handle>(__func__, handle);
}

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

std::size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "unknown";
    }
}

const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    MatmulDescription made;
    made.compute = compute;
    made.scale = scale;
    return create(__func__, handle, made);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
    return destroy<MatmulDescription>(__func__, handle);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* data, std::size_t bytes) {
    if (fails_now(__func__)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    auto& description = behind<MatmulDescription>(handle);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(description.op_a, data, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(description.op_b, data, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(description.epilogue, data, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(description.bias, data, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return take(description.bias_type, data, bytes);
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return take(description.compute, data, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return take(description.scale, data, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return take_only(CUBLASLT_POINTER_MODE_HOST, data, bytes, "factors on the device");
    default:
        return refused("matmul attribute " + std::to_string(attribute));
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t stride) {
    return create(__func__, handle, MatrixLayout{type, rows, columns, stride});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
    return destroy<MatrixLayout>(__func__, handle);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* data, std::size_t bytes) {
    if (fails_now(__func__)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    auto& layout = behind<MatrixLayout>(handle);
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return take(layout.type, data, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return take(layout.rows, data, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return take(layout.columns, data, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return take(layout.stride, data, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return take_only(CUBLASLT_ORDER_COL, data, bytes, "orders other than by columns");
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return take_only(1, data, bytes, "batches of products");
    default:
        return refused("layout attribute " + std::to_string(attribute));
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
    return create(__func__, handle, MatmulPreference{});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
    return destroy<MatmulPreference>(__func__, handle);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* data, std::size_t bytes) {
    if (fails_now(__func__)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    auto& preference = behind<MatmulPreference>(handle);
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(preference.workspace, data, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return take(preference.reductions, data, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return take(preference.alignment[0], data, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return take(preference.alignment[1], data, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return take(preference.alignment[2], data, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return take(preference.alignment[3], data, bytes);
    default:
        return refused("preference attribute " + std::to_string(attribute));
    }
}

} // extern "C"
