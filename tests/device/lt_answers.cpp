// SPDX-License-Identifier: Apache-2.0
// As src/kernels/cuda/lt_products.cpp describes a product, asked for more answers than one.
#include "lt_answers.hpp"

#include <foregather/base/error.hpp>
#include <foregather/device/cuda_stream.hpp>

namespace foregather::device_bench {
namespace {

using kernels::cublaslt;

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    cublaslt().check(cublaslt().desc_set(desc, attribute, &value, sizeof(value)),
                     "describe a product");
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
    cublaslt().check(cublaslt().preference_set(preference, attribute, &value, sizeof(value)),
                     "say what is preferred");
}

kernels::LtLayout layout(cudaDataType_t type, base::Elements rows, base::Elements columns,
                         base::Elements stride) {
    cublasLtMatrixLayout_t made = nullptr;
    cublaslt().check(cublaslt().layout_create(&made, type, static_cast<std::uint64_t>(rows),
                                              static_cast<std::uint64_t>(columns), stride),
                     "describe a matrix");
    return kernels::LtLayout(made);
}

kernels::LtPreference preference() {
    cublasLtMatmulPreference_t made = nullptr;
    cublaslt().check(cublaslt().preference_create(&made), "make a preference");
    kernels::LtPreference preference(made);
    set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<std::uint64_t>(kernels::lt_workspace.count));
    set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    return preference;
}

} // namespace

LtAnswers::LtAnswers(const Shape& s, base::View<std::byte> workspace, int most)
    : workspace_(workspace), add_(s.add), answers_(static_cast<std::size_t>(most)) {
    cublasLtHandle_t handle = nullptr;
    cublaslt().check(cublaslt().create(&handle), "open the GPU");
    handle_ = kernels::LtHandle(handle);
    const cudaDataType_t type = s.type == base::DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
    cublasLtMatmulDesc_t desc = nullptr;
    cublaslt().check(cublaslt().desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                     "describe a product");
    desc_ = kernels::LtDesc(desc);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    w_ = layout(type, s.in, s.out, s.in);
    x_ = layout(type, s.in, s.rows, s.in);
    y_ = layout(CUDA_R_32F, s.out, s.rows, s.y_stride);
    const kernels::LtPreference wanted = preference();
    int found = 0;
    cublaslt().check(cublaslt().heuristic(handle_.handle(), desc, w_.handle(), x_.handle(),
                                          y_.handle(), y_.handle(), wanted.handle(), most,
                                          answers_.data(), &found),
                     "tell its answers to a product");
    answers_.resize(static_cast<std::size_t>(found));
    std::erase_if(answers_, [](const auto& a) { return a.state != CUBLAS_STATUS_SUCCESS; });
}

void LtAnswers::multiply(int answer, const kernels::LtProducts::Operands& o,
                         device::Stream& stream) const {
    const auto& chosen = answers_.at(static_cast<std::size_t>(answer));
    const float alpha = 1, beta = add_ ? 1 : 0;
    cublaslt().check(cublaslt().matmul(handle_.handle(), desc_.handle(), &alpha, o.right,
                                       w_.handle(), o.left, x_.handle(), &beta, o.result,
                                       y_.handle(), o.result, y_.handle(), &chosen.algo,
                                       workspace_.data(), chosen.workspaceSize,
                                       device::cuda_stream(stream)),
                     "enqueue a product");
}

} // namespace foregather::device_bench
