// SPDX-License-Identifier: Apache-2.0
// Products of the test double of cuBLASLt, behind the real symbols: it refuses the types that the
// documentation does not list, an algorithm that is not that of the shapes, too little workspace
// and broken promises of alignment. Tests only.
#include "cublaslt.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "call.hpp"

using namespace foregather::emulation;

namespace {

constexpr std::uint64_t scratch = 32768; // bytes of workspace that an unsplit product likes to use
constexpr std::uint64_t workspace_alignment = 256;
constexpr std::uint64_t split_from = 4; // inner length / larger outer one, to split the sum in two

// The words of an opaque algorithm.
enum Word : std::size_t {
    problem_word,
    workspace_word,
    alignment_word,
    parts_word,
    check_word = 7
};

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
    return (hash ^ (value + 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu ^ (hash >> 29);
}

std::uint64_t hash_of(const Problem& p) {
    std::uint64_t hash = 1;
    for (const MatrixLayout& m : {p.a, p.b, p.c, p.d}) {
        for (const std::uint64_t value : {static_cast<std::uint64_t>(m.type), m.rows, m.columns,
                                          static_cast<std::uint64_t>(m.stride)}) {
            hash = mixed(hash, value);
        }
    }
    for (const int value :
         {static_cast<int>(p.description.compute), static_cast<int>(p.description.op_a),
          static_cast<int>(p.description.op_b), static_cast<int>(p.description.epilogue)}) {
        hash = mixed(hash, static_cast<std::uint64_t>(value));
    }
    return hash;
}

std::uint64_t check_of(const cublasLtMatmulAlgo_t& algorithm) {
    std::uint64_t hash = 2;
    for (std::size_t i = 0; i < check_word; ++i) {
        hash = mixed(hash, algorithm.data[i]);
    }
    return hash;
}

bool types_are_listed(const Problem& p) {
    const cudaDataType_t in = p.a.type;
    const cudaDataType_t out = p.d.type;
    if (p.description.scale != CUDA_R_32F || p.b.type != in || p.c.type != out) {
        return false;
    }
    switch (p.description.compute) {
    case CUBLAS_COMPUTE_32F:
        return (in == CUDA_R_32F && out == CUDA_R_32F) ||
               (in == CUDA_R_16BF && (out == CUDA_R_32F || out == CUDA_R_16BF));
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        return in == CUDA_R_32F && out == CUDA_R_32F;
    default:
        return false;
    }
}

cublasStatus_t status_of(const Problem& p) {
    const auto& op = p.description;
    for (const MatrixLayout& m : {p.a, p.b, p.c, p.d}) {
        if (m.rows == 0 || m.columns == 0 || m.stride < static_cast<std::int64_t>(m.rows)) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    if (op.op_a == CUBLAS_OP_C || op.op_b == CUBLAS_OP_C || !types_are_listed(p)) {
        not_modelled("a product of such types: they are not in the documented table");
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && op.epilogue != CUBLASLT_EPILOGUE_BIAS) {
        not_modelled("epilogue " + std::to_string(op.epilogue));
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    // The documented table: a bias has the type of D.
    if (op.epilogue == CUBLASLT_EPILOGUE_BIAS && op.bias_type != -1 &&
        op.bias_type != static_cast<std::int32_t>(p.d.type)) {
        not_modelled("a bias of another type than that of D");
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const std::uint64_t rows = op.op_a == CUBLAS_OP_N ? p.a.rows : p.a.columns;
    const std::uint64_t columns = op.op_b == CUBLAS_OP_N ? p.b.columns : p.b.rows;
    const std::uint64_t inner = op.op_b == CUBLAS_OP_N ? p.b.rows : p.b.columns;
    const bool fit = inner == p.inner() && rows == p.d.rows && columns == p.d.columns &&
                     p.c.rows == rows && p.c.columns == columns;
    return fit ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// Column by column where there are gaps: a neighbour's columns are nobody's business.
void touch(std::vector<Touch>& touches, const void* data, const MatrixLayout& m, bool written) {
    const std::size_t size = size_of(m.type);
    if (m.stride == static_cast<std::int64_t>(m.rows)) {
        touches.push_back({data, m.rows * m.columns * size, written});
        return;
    }
    for (std::size_t j = 0; j < m.columns; ++j) {
        touches.push_back(
            {static_cast<const char*>(data) + j * static_cast<std::size_t>(m.stride) * size,
             m.rows * size, written});
    }
}

bool is_aligned(const void* data, std::uint64_t alignment) {
    return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

// "" if the algorithm was found for this problem and the pointers are what it was promised.
std::string_view objection(const Problem& p, const Operands& x,
                           const cublasLtMatmulAlgo_t& algorithm, const void* workspace,
                           std::size_t workspace_bytes) {
    if (algorithm.data[check_word] != check_of(algorithm)) {
        return "an algorithm that no heuristic gave, or that was changed";
    }
    if (algorithm.data[problem_word] != hash_of(p)) {
        return "an algorithm that was found for other shapes, types or epilogue";
    }
    if (workspace_bytes < algorithm.data[workspace_word] ||
        (workspace == nullptr && algorithm.data[workspace_word] > 0)) {
        return "less workspace than the algorithm needs";
    }
    if (!is_aligned(workspace, workspace_alignment)) {
        return "a workspace that is not aligned to 256 bytes";
    }
    const void* const pointers[] = {x.a, x.b, x.beta == 0 ? nullptr : x.c, x.d};
    for (unsigned i = 0; i < 4; ++i) {
        if (!is_aligned(pointers[i], 1u << ((algorithm.data[alignment_word] >> (8 * i)) & 0xFF))) {
            return "a matrix that is aligned less than the preference promised";
        }
    }
    if (p.description.epilogue == CUBLASLT_EPILOGUE_BIAS &&
        (p.description.bias == nullptr || !is_aligned(p.description.bias, 16))) {
        return "a bias that is not aligned to 16 bytes, or none";
    }
    return "";
}

Problem problem_of(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
    return {behind<MatmulDescription>(operation), behind<MatrixLayout>(a), behind<MatrixLayout>(b),
            behind<MatrixLayout>(c), behind<MatrixLayout>(d)};
}

cublasLtMatmulAlgo_t algorithm_for(const Problem& p, const MatmulPreference& preference) {
    cublasLtMatmulAlgo_t algorithm{};
    const std::uint64_t outer = std::max(p.d.rows, p.d.columns);
    const std::uint64_t split_bytes = 2 * p.d.rows * p.d.columns * sizeof(float);
    const bool split = (preference.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0 &&
                       p.inner() >= split_from * outer && split_bytes <= preference.workspace;
    algorithm.data[problem_word] = hash_of(p);
    algorithm.data[parts_word] = split ? 2 : 1;
    algorithm.data[workspace_word] = split                             ? split_bytes
                                     : scratch <= preference.workspace ? scratch
                                                                       : 0;
    for (unsigned i = 0; i < 4; ++i) {
        const std::uint64_t log =
            static_cast<std::uint64_t>(std::log2(std::max<double>(16, preference.alignment[i])));
        algorithm.data[alignment_word] |= log << (8 * i);
    }
    algorithm.data[check_word] = check_of(algorithm);
    return algorithm;
}

} // namespace

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
    if (fails_now(__func__)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (handle == nullptr || wanted <= 0 || preference == nullptr) {
        return handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_INVALID_VALUE;
    }
    *found = 0;
    const Problem p = problem_of(operation, a, b, c, d);
    if (const cublasStatus_t status = status_of(p); status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    results[0] = {};
    results[0].algo = algorithm_for(p, behind<MatmulPreference>(preference));
    results[0].workspaceSize = results[0].algo.data[workspace_word];
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* data, std::size_t bytes,
                                                    std::size_t* written) {
    if (fails_now(__func__)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const std::uint64_t parts = algorithm->data[parts_word];
    std::uint32_t value = 0;
    switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
        value = 1;
        break;
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
        value = CUBLASLT_MATMUL_TILE_64x64;
        break;
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
        value = static_cast<std::uint32_t>(parts);
        break;
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
        value = parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
        break;
    default:
        break; // the others are 0: undefined, or the first
    }
    const bool is_short = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                          attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID; // uint16_t
    const std::size_t size = is_short ? sizeof(std::uint16_t) : sizeof value;
    if (written != nullptr) {
        *written = size;
    }
    if (bytes != size) {
        return bytes == 0 && written != nullptr ? CUBLAS_STATUS_SUCCESS
                                                : CUBLAS_STATUS_INVALID_VALUE;
    }
    std::memcpy(data, &value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
    if (fails_now(__func__)) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (handle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    const Problem p = problem_of(operation, a_layout, b_layout, c_layout, d_layout);
    if (const cublasStatus_t status = status_of(p); status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    if (algorithm == nullptr) {
        not_modelled("a product without an algorithm");
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const Operands x{a,
                     b,
                     c,
                     d,
                     *static_cast<const float*>(alpha),
                     *static_cast<const float*>(beta),
                     algorithm->data[parts_word]};
    const auto wrong = objection(p, x, *algorithm, workspace, workspace_bytes);
    if (!wrong.empty()) {
        report("PRODUCT", "cublasLtMatmul is given " + std::string(wrong));
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    std::vector<Touch> touches;
    touch(touches, a, p.a, false);
    touch(touches, b, p.b, false);
    if (x.beta != 0) {
        touch(touches, c, p.c, false);
    }
    touch(touches, d, p.d, true);
    if (p.description.epilogue == CUBLASLT_EPILOGUE_BIAS) {
        touches.push_back({p.description.bias, p.d.rows * size_of(p.d.type), false});
    }
    const std::size_t used = algorithm->data[workspace_word];
    touches.push_back({workspace, used, true});
    count("products");
    count("kernels");
    const cudaError_t error = submit_on(stream, "cublasLtMatmul", touches, [=] {
        std::memset(workspace, 0xFF, used);
        multiply(p, x);
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // extern "C"
