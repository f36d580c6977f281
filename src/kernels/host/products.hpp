// SPDX-License-Identifier: Apache-2.0
// Matrix products as the host kernels ask for them, whichever library does them. Who multiplies
// what in which blocks is decided by the kernels that call it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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

// What a product library does, in messages.
inline constexpr const char* library_purpose = "multiplies matrices on the host";

using Bf16 = std::uint16_t; // the bits of a bfloat16

// One call runs on the calling thread alone, and its bits depend on its arguments alone. Sums are
// fp32. With beta 0, c is not read.
class Products {
public:
    virtual ~Products() = default;

    // c = alpha a b^T + beta c with a [m, k], b [n, k].
    virtual void multiply_transposed(ProductSize size, float alpha, Matrix<const float> a,
                                     Matrix<const float> b, float beta, Matrix<float> c) const = 0;
    // c = a b + beta c with a [m, k], b [k, n].
    virtual void multiply(ProductSize size, Matrix<const float> a, Matrix<const float> b,
                          float beta, Matrix<float> c) const = 0;
    // c = a^T b + beta c with a [k, m], b [k, n]: a sum of outer products of rows.
    virtual void multiply_outer(ProductSize size, Matrix<const float> a, Matrix<const float> b,
                                float beta, Matrix<float> c) const = 0;

    // The same with bf16 operands: only where multiplies_bf16(), otherwise they throw.
    virtual bool multiplies_bf16() const { return false; }
    virtual void multiply_transposed(ProductSize size, float alpha, Matrix<const Bf16> a,
                                     Matrix<const Bf16> b, float beta, Matrix<float> c) const;
    virtual void multiply(ProductSize size, Matrix<const Bf16> a, Matrix<const Bf16> b, float beta,
                          Matrix<float> c) const;
    virtual void multiply_outer(ProductSize size, Matrix<const Bf16> a, Matrix<const Bf16> b,
                                float beta, Matrix<float> c) const;

    // Library, version and kernels, e.g. "OpenBLAS 0.3.21 SkylakeX".
    virtual std::string name() const = 0;
};

// Loads the library that was chosen, and tries it. Throws Error(refused) as make_host_kernels().
std::unique_ptr<Products> make_products(const ProductChoice& choice);

std::unique_ptr<Products> make_openblas(const std::string& core_type);
std::unique_ptr<Products> make_blis();
std::unique_ptr<Products> make_onednn(const std::string& core_type);
bool onednn_can_be_loaded();

// Throws Error(refused) naming `advice` unless small products of every kind that `products` offers
// agree with plain sums in double.
void try_products(const Products& products, const std::string& advice);

} // namespace foregather::kernels
