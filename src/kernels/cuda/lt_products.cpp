// SPDX-License-Identifier: Apache-2.0
// cuBLASLt thinks in columns, so it is asked for the transposed results: y^T = w x^T, dx^T = w^T
// dy^T, dw^T = x^T dy. Its A is the right operand, its B the left one; what it takes for a matrix
// without transposition is the transpose of ours.
#include "lt_products.hpp"

#include <array>
#include <utility>

#include <foregather/device/cuda_stream.hpp>

namespace foregather::kernels {
namespace {

std::string text_of(const LtProducts::Shape& s) {
    return std::to_string(s.rows) + " rows, " + std::to_string(s.in) + " -> " +
           std::to_string(s.out) + " " + base::name_of(s.type) + (s.bias ? ", bias" : "") +
           (s.product == Product::input_gradient    ? ", the input's gradient"
            : s.product == Product::weight_gradient ? ", the weight's gradient"
                                                    : "") +
           (s.add ? ", added" : "");
}

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

LtLayout layout(cudaDataType_t type, Elements rows, Elements columns, Elements stride) {
    cublasLtMatrixLayout_t made = nullptr;
    cublaslt().check(cublaslt().layout_create(&made, type, static_cast<std::uint64_t>(rows),
                                              static_cast<std::uint64_t>(columns), stride),
                     "describe a matrix");
    return LtLayout(made);
}

// What makes results vary from run to run, or depend on the order in which blocks end, is left out:
// of the ways to sum over a split K, those through the workspace.
LtPreference preference() {
    cublasLtMatmulPreference_t made = nullptr;
    cublaslt().check(cublaslt().preference_create(&made), "make a preference");
    LtPreference preference(made);
    set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<std::uint64_t>(lt_workspace.count));
    set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    return preference;
}

} // namespace

LtProducts::LtProducts(device::Device& device, bool tf32)
    : tf32_(tf32), workspace_(device, lt_workspace.count, "the workspace of products") {
    cublasLtHandle_t handle = nullptr;
    cublaslt().check(cublaslt().create(&handle), "open the GPU");
    handle_ = LtHandle(handle);
}

LtProducts::Plan LtProducts::plan(const Shape& s) const {
    const cudaDataType_t type = s.type == base::DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
    const auto compute =
        s.type == base::DType::f32 && tf32_ ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasLtMatmulDesc_t made = nullptr;
    cublaslt().check(cublaslt().desc_create(&made, compute, CUDA_R_32F), "describe a product");
    const bool to_y = s.product == Product::output, to_w = s.product == Product::weight_gradient;
    const auto w = [&](cudaDataType_t t) { return layout(t, s.in, s.out, s.in); };
    const auto x = [&](cudaDataType_t t) { return layout(t, s.in, s.rows, s.in); };
    const auto y = [&](cudaDataType_t t) { return layout(t, s.out, s.rows, s.y_stride); };
    Plan plan{LtDesc(made), to_w ? x(type) : w(type), to_y ? x(type) : y(type),
              to_y   ? y(CUDA_R_32F)
              : to_w ? w(CUDA_R_32F)
                     : x(CUDA_R_32F)};
    set(made, CUBLASLT_MATMUL_DESC_TRANSA, to_y ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(made, CUBLASLT_MATMUL_DESC_TRANSB, to_w ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (s.bias) {
        set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
        set(made, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(CUDA_R_32F));
    }
    const LtPreference wanted = preference();
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t rc =
        cublaslt().heuristic(handle_.handle(), made, plan.a.handle(), plan.b.handle(),
                             plan.d.handle(), plan.d.handle(), wanted.handle(), 1, &best, &found);
    if (rc == CUBLAS_STATUS_NOT_SUPPORTED || (rc == CUBLAS_STATUS_SUCCESS && found == 0)) {
        base::refuse("cuBLASLt " + version() + " has no algorithm for a product of " + text_of(s));
    }
    cublaslt().check(rc, "choose an algorithm for a product of " + text_of(s));
    cublaslt().check(best.state, "choose an algorithm for a product of " + text_of(s));
    plan.algorithm = best.algo;
    plan.workspace = best.workspaceSize;
    return plan;
}

void LtProducts::prepare(const Shape& shape) {
    if (plans_.find(shape) == plans_.end()) {
        plans_.emplace(shape, plan(shape));
    }
}

void LtProducts::multiply(const Shape& shape, const Operands& operands, Stream& stream) {
    const auto place = plans_.find(shape);
    if (place == plans_.end()) {
        base::fail("a product of " + text_of(shape) + " was not prepared");
    }
    Plan& plan = place->second;
    plan.used = true;
    if (shape.bias) {
        set(plan.desc.handle(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    }
    const float alpha = 1, beta = shape.add ? 1 : 0;
    cublaslt().check(cublaslt().matmul(handle_.handle(), plan.desc.handle(), &alpha, operands.right,
                                       plan.a.handle(), operands.left, plan.b.handle(), &beta,
                                       operands.result, plan.d.handle(), operands.result,
                                       plan.d.handle(), &plan.algorithm, workspace_.view().data(),
                                       plan.workspace, device::cuda_stream(stream)),
                     "enqueue a product of " + text_of(shape));
}

std::string LtProducts::version() const {
    const std::size_t v = cublaslt().version();
    return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
           std::to_string(v % 100);
}

std::string LtProducts::describe(const Shape& shape, const Plan& plan) const {
    using Attribute = std::pair<const char*, cublasLtMatmulAlgoConfigAttributes_t>;
    constexpr std::array attributes = {
        Attribute{"algorithm", CUBLASLT_ALGO_CONFIG_ID},
        Attribute{"tile", CUBLASLT_ALGO_CONFIG_TILE_ID},
        Attribute{"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID},
        Attribute{"split-k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM},
        Attribute{"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME},
        Attribute{"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING}};
    std::string text = text_of(shape) + ":";
    for (const auto& [name, attribute] : attributes) {
        std::int32_t value = 0; // all of these have four bytes
        std::size_t written = 0;
        cublaslt().check(cublaslt().algorithm_attribute(&plan.algorithm, attribute, &value,
                                                        sizeof(value), &written),
                         "describe an algorithm");
        text += std::string(" ") + name + " " + std::to_string(value);
    }
    return text + " workspace " + std::to_string(plan.workspace) + "\n";
}

std::string LtProducts::algorithms() const {
    std::string text;
    for (const auto& [shape, plan] : plans_) {
        text += plan.used ? describe(shape, plan) : "";
    }
    return text;
}

} // namespace foregather::kernels
