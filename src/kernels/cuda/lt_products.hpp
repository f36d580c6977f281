// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt: for each shape the algorithm is asked for once, before the run, and
// kept. Rows are rounded up to a multiple, so that there are few shapes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <foregather/device/device.hpp>
#include <foregather/kernels/kernels.hpp>

#include "cublaslt.hpp"

namespace foregather::kernels {

// cuBLASLt's memory for a product, the same on every GPU, since what it chooses depends on it.
inline constexpr base::Bytes lt_workspace{32 << 20};

class LtProducts {
public:
    // The workspace is allocated on `device`, which must outlive this object; all products must go
    // to one stream. tf32: may fp32 operands be rounded to 10 bits for the tensor cores?
    LtProducts(device::Device& device, bool tf32);

    // A product of x [rows, in], w [out, in] and y [rows, out], whose rows are y_stride apart.
    struct Shape {
        Elements rows = 0; // a multiple of product_row_multiple
        Elements in = 0, out = 0, y_stride = 0;
        base::DType type = base::DType::f32; // of both operands; results and sums are fp32
        bool bias = false;                   // fp32 [out], added to every row of y
        bool add = false;                    // to what the result holds
        Product product = Product::output;

        friend auto operator<=>(const Shape&, const Shape&) = default;
    };
    // In the order of the words of Product: x w, dy w, dy x.
    struct Operands {
        const void* left = nullptr;
        const void* right = nullptr;
        const float* bias = nullptr;
        float* result = nullptr;
    };

    // Asks cuBLASLt for its algorithm; blocks, no GPU work. Throws Error(refused) if it has none.
    void prepare(const Shape& shape);
    // Enqueues. Throws Error(failed) for a shape that was not prepared.
    void multiply(const Shape& shape, const Operands& operands, Stream& stream);

    std::string version() const; // "13.1.0"
    // A line for each shape that has been multiplied: the shape and its algorithm.
    std::string algorithms() const;

private:
    struct Plan {
        LtDesc desc;
        LtLayout a, b, d; // of cuBLASLt's operands and its result
        cublasLtMatmulAlgo_t algorithm{};
        std::size_t workspace = 0;
        bool used = false;
    };
    Plan plan(const Shape& shape) const;
    std::string describe(const Shape& shape, const Plan& plan) const;

    bool tf32_;
    LtHandle handle_;
    device::Buffer<std::byte> workspace_;
    std::map<Shape, Plan> plans_;
};

} // namespace foregather::kernels
