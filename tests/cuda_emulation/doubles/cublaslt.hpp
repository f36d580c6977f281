// SPDX-License-Identifier: Apache-2.0
// What stands behind the opaque handles of cuBLASLt in its test double. Tests only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cublasLt.h>

namespace foregather::emulation {

struct MatmulDescription {
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cudaDataType_t scale = CUDA_R_32F;
    cublasOperation_t op_a = CUBLAS_OP_N;
    cublasOperation_t op_b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    std::int32_t bias_type = -1; // that of D
};

struct MatrixLayout { // column-major
    cudaDataType_t type = CUDA_R_32F;
    std::uint64_t rows = 0;
    std::uint64_t columns = 0;
    std::int64_t stride = 0; // elements from column to column
};

struct MatmulPreference {
    std::uint64_t workspace = 0;
    std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    std::array<std::uint32_t, 4> alignment{256, 256, 256, 256}; // of A, B, C, D in bytes
};

struct Problem {
    MatmulDescription description;
    MatrixLayout a;
    MatrixLayout b;
    MatrixLayout c;
    MatrixLayout d;

    std::uint64_t inner() const { return description.op_a == CUBLAS_OP_N ? a.columns : a.rows; }
};

struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* c = nullptr;
    void* d = nullptr;
    float alpha = 1;
    float beta = 0;
    std::uint64_t parts = 1;
};

inline std::size_t size_of(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

// D = alpha op(A) op(B) + beta C + bias, the sums in fp32, on the calling thread. The inner length
// is cut into parts that are added one after another.
void multiply(const Problem& problem, const Operands& operands);

template <typename Real, typename Handle>
Real& behind(Handle handle) {
    return *reinterpret_cast<Real*>(handle);
}

} // namespace foregather::emulation
