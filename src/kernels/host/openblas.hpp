// SPDX-License-Identifier: Apache-2.0
// Matrix products by OpenBLAS, loaded at run time, since it picks its kernels while being loaded.
// Who multiplies what in which blocks is decided by the kernels that call it.
#pragma once

#include <string>

#include <cblas.h>

#include <foregather/kernels/host_kernels.hpp>

namespace foregather::kernels {

// A row-major matrix inside a larger array: entry (i, j) is data[i * stride + j].
template <class T>
struct Matrix {
    T* data = nullptr;
    base::Elements stride = 0;
};

struct ProductSize {
    base::Elements m = 0, n = 0, k = 0; // c [m, n], k terms in each sum
};

class OpenBlas {
public:
    // Throws Error(refused) as make_host_kernels() says. The library stays loaded.
    explicit OpenBlas(const ProductChoice& choice);

    // c = alpha a b^T + beta c with a [m, k], b [n, k]. With beta 0, c is not read.
    void multiply_transposed(ProductSize size, float alpha, Matrix<const float> a,
                             Matrix<const float> b, float beta, Matrix<float> c) const;
    // c = a b + beta c with a [m, k], b [k, n]. With beta 0, c is not read.
    void multiply(ProductSize size, Matrix<const float> a, Matrix<const float> b, float beta,
                  Matrix<float> c) const;

    // E.g. "OpenBLAS 0.3.21 SkylakeX".
    const std::string& name() const { return name_; }

private:
    decltype(&cblas_sgemm) sgemm_ = nullptr;
    std::string name_;
};

} // namespace foregather::kernels
