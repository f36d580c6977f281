// SPDX-License-Identifier: Apache-2.0
// Products by BLIS, loaded at run time with one thread. It picks its kernels by the processor:
// ranks whose processors differ are told apart by name().
#include "products.hpp"

#include <cblas.h>

#include <foregather/base/error.hpp>
#include <foregather/base/shared_library.hpp>

namespace foregather::kernels {
namespace {

class Blis final : public Products {
public:
    Blis() {
        const base::SharedLibrary library("libblis.so.4", library_purpose,
                                          "install BLIS (Debian package libblis4-serial), or set "
                                          "device.products = auto");
        library.function<void (*)(long)>("bli_thread_set_num_threads")(1);
        sgemm_ = library.function<decltype(&cblas_sgemm)>("cblas_sgemm");
        const auto architecture = library.function<int (*)()>("bli_arch_query_id")();
        name_ = std::string("BLIS ") +
                library.function<const char* (*)()>("bli_info_get_version_str")() + " " +
                library.function<const char* (*)(int)>("bli_arch_string")(architecture);
    }

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

} // namespace

std::unique_ptr<Products> make_blis() {
    auto products = std::make_unique<Blis>();
    try_products(*products, "set device.products = openblas");
    return products;
}

} // namespace foregather::kernels
