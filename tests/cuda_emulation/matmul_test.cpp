// SPDX-License-Identifier: Apache-2.0
// Pins the test double of cuBLASLt to what its header and documentation say.
#include "doubles_test.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

#include <cublasLt.h>

namespace foregather::emulation {
namespace {

constexpr std::size_t m = 8;
constexpr std::size_t n = 4;
constexpr std::size_t k = 16;

// One product D[m x n] = op(A) op(B) (+ bias), all column-major, with A stored [k x m].
struct Product {
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr;
    cublasLtMatrixLayout_t b = nullptr;
    cublasLtMatrixLayout_t d = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulHeuristicResult_t found{};
    std::uint64_t workspace_bytes = 65536;
    float alpha = 1;
    float beta = 0;

    explicit Product(cublasComputeType_t compute = CUBLAS_COMPUTE_32F,
                     cudaDataType_t in = CUDA_R_32F, cudaDataType_t out = CUDA_R_32F,
                     std::size_t columns = n, std::size_t inner = k) {
        EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
        EXPECT_EQ(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
        set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
        layout(a, in, inner, m);
        layout(b, in, inner, columns);
        layout(d, out, m, columns);
        EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
        EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference,
                                                       CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                       &workspace_bytes, sizeof workspace_bytes),
                  CUBLAS_STATUS_SUCCESS);
    }
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;
    ~Product() {
        cublasLtMatmulPreferenceDestroy(preference);
        for (const auto each : {a, b, d}) {
            cublasLtMatrixLayoutDestroy(each);
        }
        cublasLtMatmulDescDestroy(operation);
        cublasLtDestroy(handle);
    }

    static void layout(cublasLtMatrixLayout_t& made, cudaDataType_t type, std::size_t rows,
                       std::size_t columns) {
        EXPECT_EQ(
            cublasLtMatrixLayoutCreate(&made, type, rows, columns, static_cast<std::int64_t>(rows)),
            CUBLAS_STATUS_SUCCESS);
    }

    // A stored [m x k], B stored [n x k], of fp32.
    void lay_out_anew(bool plain_a, bool turned_b) {
        if (plain_a) {
            cublasLtMatrixLayoutDestroy(a);
            layout(a, CUDA_R_32F, m, k);
        }
        if (turned_b) {
            cublasLtMatrixLayoutDestroy(b);
            layout(b, CUDA_R_32F, n, k);
        }
    }

    template <typename Value>
    void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
        EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
                  CUBLAS_STATUS_SUCCESS);
    }

    void allow(cublasLtReductionScheme_t reductions) {
        const auto mask = static_cast<std::uint32_t>(reductions);
        EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(
                      preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask, sizeof mask),
                  CUBLAS_STATUS_SUCCESS);
    }

    cublasStatus_t find() {
        int results = 0;
        const auto status = cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, d, d,
                                                           preference, 1, &found, &results);
        EXPECT_EQ(results, status == CUBLAS_STATUS_SUCCESS ? 1 : 0);
        return status;
    }

    cublasStatus_t run(const void* x, const void* y, void* z, void* workspace,
                       cudaStream_t stream) const {
        return cublasLtMatmul(handle, operation, &alpha, x, a, y, b, &beta, z, d, z, d, &found.algo,
                              workspace, workspace_bytes, stream);
    }

    std::uint32_t configured(cublasLtMatmulAlgoConfigAttributes_t attribute) const {
        std::uint32_t value = 77;
        std::size_t written = 0;
        EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&found.algo, attribute, &value, sizeof value,
                                                       &written),
                  CUBLAS_STATUS_SUCCESS);
        EXPECT_EQ(written, sizeof value);
        return value;
    }
};

// Device memory that holds what the host gives, whatever its type.
template <typename T>
T* on_device(const std::vector<T>& values, cudaStream_t stream) {
    void* pinned = nullptr;
    void* data = nullptr;
    const std::size_t bytes = values.size() * sizeof(T);
    EXPECT_EQ(cudaMallocHost(&pinned, bytes), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
    std::memcpy(pinned, values.data(), bytes);
    EXPECT_EQ(cudaMemcpyAsync(data, pinned, bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
    return static_cast<T*>(data);
}

std::vector<float> numbers(std::size_t count, float step) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(static_cast<int>(i % 7) - 3) * step;
    }
    return values;
}

float expected(const std::vector<float>& x, const std::vector<float>& y, std::size_t i,
               std::size_t j) {
    double sum = 0;
    for (std::size_t at = 0; at < k; ++at) {
        sum += static_cast<double>(x[at + i * k]) * static_cast<double>(y[at + j * k]);
    }
    return static_cast<float>(sum);
}

struct Matmul : testing::Test {
    Emulation one;
    cudaStream_t stream = new_stream();
    float* workspace = new_floats(16384);
    std::vector<float> x = numbers(m * k, 0.5f);
    std::vector<float> y = numbers(n * k, 0.25f);
    float* z = new_floats(m * n);
};

TEST_F(Matmul, MultipliesAndAddsTheBias) {
    Product product;
    const float* bias = on_device(numbers(m, 100), stream);
    product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    ASSERT_EQ(product.find(), CUBLAS_STATUS_SUCCESS);
    EXPECT_GT(product.found.workspaceSize, 0u);
    EXPECT_EQ(product.run(on_device(x, stream), on_device(y, stream), z, workspace, stream),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t i = 0; i < m; ++i) {
            EXPECT_EQ(z[i + j * m], expected(x, y, i, j) + numbers(m, 100)[i]);
        }
    }
    EXPECT_EQ(counted("reports"), 0);
}

// The same numbers, stored the other way round.
std::vector<float> turned(const std::vector<float>& from, std::size_t rows) {
    const std::size_t columns = from.size() / rows;
    std::vector<float> to(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
        to[i % rows * columns + i / rows] = from[i];
    }
    return to;
}

TEST_F(Matmul, TransposesWhatItIsToldAndRefusesShapesThatDoNotFitThen) {
    for (const bool plain_a : {false, true}) {
        for (const bool turned_b : {false, true}) {
            Product product;
            product.set(CUBLASLT_MATMUL_DESC_TRANSA, plain_a ? CUBLAS_OP_N : CUBLAS_OP_T);
            product.set(CUBLASLT_MATMUL_DESC_TRANSB, turned_b ? CUBLAS_OP_T : CUBLAS_OP_N);
            if (plain_a || turned_b) {
                EXPECT_EQ(product.find(), CUBLAS_STATUS_INVALID_VALUE);
            }
            product.lay_out_anew(plain_a, turned_b);
            ASSERT_EQ(product.find(), CUBLAS_STATUS_SUCCESS);
            const float* a = on_device(plain_a ? turned(x, k) : x, stream);
            const float* b = on_device(turned_b ? turned(y, k) : y, stream);
            EXPECT_EQ(product.run(a, b, z, workspace, stream), CUBLAS_STATUS_SUCCESS);
            EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
            for (std::size_t i = 0; i < m * n; ++i) {
                EXPECT_EQ(z[i], expected(x, y, i % m, i / m)) << plain_a << turned_b << i;
            }
        }
    }
}

TEST_F(Matmul, AddsToCOnlyIfBetaSaysSo) {
    Product product;
    ASSERT_EQ(product.find(), CUBLAS_STATUS_SUCCESS);
    const float* a = on_device(x, stream);
    const float* b = on_device(y, stream);
    EXPECT_EQ(product.run(a, b, z, workspace, stream), CUBLAS_STATUS_SUCCESS); // z was NaN
    product.alpha = 2;
    product.beta = 3;
    EXPECT_EQ(product.run(a, b, z, workspace, stream), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(z[1], 5 * expected(x, y, 1, 0));
}

TEST_F(Matmul, BfloatsAreWidenedAndRounded) {
    const std::vector<std::uint16_t> ones(m * k, 0x3F80);
    const std::vector<std::uint16_t> odd(n * k, 0x3F81); // 1 + 2^-7
    for (const auto out : {CUDA_R_32F, CUDA_R_16BF}) {
        Product product(CUBLAS_COMPUTE_32F, CUDA_R_16BF, out);
        ASSERT_EQ(product.find(), CUBLAS_STATUS_SUCCESS);
        EXPECT_EQ(
            product.run(on_device(ones, stream), on_device(odd, stream), z, workspace, stream),
            CUBLAS_STATUS_SUCCESS);
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        std::uint16_t first = 0;
        std::memcpy(&first, z, sizeof first);
        EXPECT_TRUE(out == CUDA_R_32F ? z[0] == 16.125f : first == 0x4181);
    }
}

TEST_F(Matmul, FastTf32KeepsTenBits) {
    const float fine = 1 + std::ldexp(1.0f, -12);
    x.assign(x.size(), fine);
    y.assign(y.size(), 1.0f);
    for (const auto compute : {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32}) {
        Product product(compute);
        ASSERT_EQ(product.find(), CUBLAS_STATUS_SUCCESS);
        EXPECT_EQ(product.run(on_device(x, stream), on_device(y, stream), z, workspace, stream),
                  CUBLAS_STATUS_SUCCESS);
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        EXPECT_EQ(z[0], compute == CUBLAS_COMPUTE_32F ? 16 * fine : 16.0f);
    }
}

TEST_F(Matmul, RefusesTypesThatAreNotListed) {
    EXPECT_EQ(Product(CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_16BF).find(),
              CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(Product(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF).find(),
              CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(Product(CUBLAS_COMPUTE_64F).find(), CUBLAS_STATUS_NOT_SUPPORTED);
    Product biased(CUBLAS_COMPUTE_32F, CUDA_R_16BF, CUDA_R_16BF);
    biased.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    biased.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(CUDA_R_32F));
    EXPECT_EQ(biased.find(), CUBLAS_STATUS_NOT_SUPPORTED);
    biased.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_BIAS);
    EXPECT_EQ(biased.find(), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(Matmul, ChecksAlgorithmWorkspaceAndAlignment) {
    Product product;
    Product other(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, n * 2);
    const float* a = on_device(x, stream);
    const float* b = on_device(y, stream);
    ASSERT_EQ(product.find(), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(other.find(), CUBLAS_STATUS_SUCCESS);
    const auto right = product.found;
    product.found = other.found;
    EXPECT_EQ(product.run(a, b, z, workspace, stream), CUBLAS_STATUS_INVALID_VALUE);
    product.found = right;
    product.found.algo.data[5] ^= 1;
    EXPECT_EQ(product.run(a, b, z, workspace, stream), CUBLAS_STATUS_INVALID_VALUE);
    product.found = right;
    EXPECT_EQ(product.run(a, b, z, workspace + 4, stream), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(product.run(a, b, z + 4, workspace, stream), CUBLAS_STATUS_INVALID_VALUE);
    product.workspace_bytes = right.workspaceSize - 1;
    EXPECT_EQ(product.run(a, b, z, workspace, stream), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(counted("reports.PRODUCT"), 5);
    product.workspace_bytes = right.workspaceSize;
    EXPECT_EQ(product.run(a, b, z, workspace, stream), CUBLAS_STATUS_SUCCESS);
}

TEST_F(Matmul, SplitsTheSumOnlyIfAllowed) {
    Product product(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, n, 64);
    ASSERT_EQ(product.find(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(product.configured(CUBLASLT_ALGO_CONFIG_SPLITK_NUM), 2u);
    EXPECT_EQ(product.configured(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
              static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    product.allow(CUBLASLT_REDUCTION_SCHEME_NONE);
    ASSERT_EQ(product.find(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(product.configured(CUBLASLT_ALGO_CONFIG_SPLITK_NUM), 1u);
    std::uint16_t shape = 7;
    std::size_t written = 0;
    EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&product.found.algo,
                                                   CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &shape,
                                                   sizeof shape, &written),
              CUBLAS_STATUS_SUCCESS);
}

TEST_F(Matmul, TwoStreamsMayNotShareAWorkspace) {
    Product product;
    ASSERT_EQ(product.find(), CUBLAS_STATUS_SUCCESS);
    const float* a = on_device(x, stream);
    const float* b = on_device(y, stream);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(product.run(a, b, z, workspace, stream), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(product.run(a, b, new_floats(m * n), workspace, new_stream()), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(counted("reports.RACE"), 1);
    EXPECT_EQ(product.run(a, b, new_floats(m * n), new_floats(16384), new_stream()),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(counted("reports.RACE"), 1);
}

TEST_F(Matmul, NeedsADevice) {
    const Emulation none(Settings{{"FOREGATHER_EMULATION_GPUS", "none"}});
    cublasLtHandle_t handle = nullptr;
    EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_GE(cublasLtGetVersion(), 130000u);
}

} // namespace
} // namespace foregather::emulation
