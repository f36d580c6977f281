// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the test double of cuBLASLt by the host's BLAS. It decides roundings, and not
// what may be asked. Tests only.
#include "cublaslt.hpp"

#include <cmath>
#include <cstring>
#include <vector>

#include <cblas.h>

namespace foregather::emulation {
namespace {

float widened(const void* data, cudaDataType_t type, std::size_t at) {
    if (type == CUDA_R_32F) {
        return static_cast<const float*>(data)[at];
    }
    const std::uint32_t bits =
        static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(data)[at]) << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// To nearest even, with so many bits of the mantissa dropped; NaN and infinity stay.
std::uint32_t rounded_bits(float value, unsigned dropped) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (!std::isfinite(value)) {
        return std::isnan(value) ? bits | 0x400000u : bits;
    }
    const std::uint32_t half = (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1u);
    return (bits + half) & ~((1u << dropped) - 1);
}

void store(void* data, cudaDataType_t type, std::size_t at, float value) {
    if (type == CUDA_R_32F) {
        static_cast<float*>(data)[at] = value;
    } else {
        static_cast<std::uint16_t*>(data)[at] =
            static_cast<std::uint16_t>(rounded_bits(value, 16) >> 16);
    }
}

// A matrix in fp32: its own memory, or a copy without gaps that is widened, or rounded to TF32.
struct Operand {
    std::vector<float> copy;
    const float* data = nullptr;
    std::size_t stride = 0;

    Operand(const void* from, const MatrixLayout& m, bool tf32)
        : data(static_cast<const float*>(from)), stride(static_cast<std::size_t>(m.stride)) {
        if (m.type == CUDA_R_32F && !tf32) {
            return;
        }
        copy.resize(m.rows * m.columns);
        for (std::size_t j = 0; j < m.columns; ++j) {
            for (std::size_t i = 0; i < m.rows; ++i) {
                float value = widened(from, m.type, i + j * stride);
                if (tf32) {
                    const std::uint32_t bits = rounded_bits(value, 13);
                    std::memcpy(&value, &bits, sizeof value);
                }
                copy[i + j * m.rows] = value;
            }
        }
        data = copy.data();
        stride = m.rows;
    }
};

std::vector<float> product(const Problem& p, const Operands& x) {
    const bool tf32 = p.description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const Operand a(x.a, p.a, tf32);
    const Operand b(x.b, p.b, tf32);
    const bool plain_a = p.description.op_a == CUBLAS_OP_N;
    const bool plain_b = p.description.op_b == CUBLAS_OP_N;
    std::vector<float> sum(p.d.rows * p.d.columns);
    for (std::uint64_t part = 0; part < x.parts; ++part) { // each adds its part of the inner length
        const std::uint64_t begin = p.inner() * part / x.parts;
        const std::uint64_t end = p.inner() * (part + 1) / x.parts;
        cblas_sgemm(CblasColMajor, plain_a ? CblasNoTrans : CblasTrans,
                    plain_b ? CblasNoTrans : CblasTrans, static_cast<int>(p.d.rows),
                    static_cast<int>(p.d.columns), static_cast<int>(end - begin), 1,
                    a.data + begin * (plain_a ? a.stride : 1), static_cast<int>(a.stride),
                    b.data + begin * (plain_b ? 1 : b.stride), static_cast<int>(b.stride),
                    part == 0 ? 0 : 1, sum.data(), static_cast<int>(p.d.rows));
    }
    return sum;
}

} // namespace

void multiply(const Problem& p, const Operands& x) {
    const std::vector<float> sum = product(p, x);
    const bool biased = p.description.epilogue == CUBLASLT_EPILOGUE_BIAS;
    for (std::size_t j = 0; j < p.d.columns; ++j) {
        for (std::size_t i = 0; i < p.d.rows; ++i) {
            float value = x.alpha * sum[i + j * p.d.rows];
            if (x.beta != 0) { // else C is not read
                value +=
                    x.beta * widened(x.c, p.c.type, i + j * static_cast<std::size_t>(p.c.stride));
            }
            if (biased) {
                value += widened(p.description.bias, p.d.type, i);
            }
            store(x.d, p.d.type, i + j * static_cast<std::size_t>(p.d.stride), value);
        }
    }
}

} // namespace foregather::emulation
