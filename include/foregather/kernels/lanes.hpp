// SPDX-License-Identifier: Apache-2.0
// The loops of the host kernels that are not matrix products, in one version for each vector width.
// All versions compute the same bits; which one is used is decided by the processor alone.
#pragma once

#include <cstdint>

namespace foregather::kernels {

enum class LaneLevel { sse2, avx2, avx512 };

// Sums run in 16 lanes (entry i goes to lane i mod 16) that are added pairwise at the end, so that
// every vector width adds in the same order. Arrays may overlap only where the text says so.
struct Lanes {
    // The largest of x[0..n), -infinity for n = 0. A NaN is passed over.
    float (*largest)(const float* x, std::int64_t n);
    // The first i with x[i] == value, or n.
    std::int64_t (*find)(const float* x, std::int64_t n, float value);
    // x[i] = exp(x[i] - shift), at most 2 units in the last place off; returns their sum. A NaN
    // stays one, as does infinity - infinity.
    float (*exp_minus)(float* x, std::int64_t n, float shift);
    // Sum of exp(x[i] - shift) in double; x is left alone.
    double (*sum_exp_minus)(const float* x, std::int64_t n, float shift);
    // With d = (x[i] - shift) * scale: the same sum of exp(d), and that of d * exp(d), whose limit
    // for d = -infinity is 0.
    struct Sums {
        double plain, weighted;
    };
    Sums (*sums_exp_scaled)(const float* x, std::int64_t n, float shift, float scale);
    // out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]. out may be gate.
    void (*silu_gate)(const float* gate, const float* up, float* out, std::int64_t n);
    // Sum of x[i]^2 in double.
    double (*sum_of_squares)(const float* x, std::int64_t n);
    // y[i] = (x[i] * factor) * w[i]. y may be x.
    void (*scale_by)(const float* x, float factor, const float* w, float* y, std::int64_t n);
    // x[i] = x[i] * factor.
    void (*scale)(float* x, float factor, std::int64_t n);
    // out[i] = x[i] rounded to bf16, to nearest, ties to even; NaN stays NaN. out may overlap x if
    // it begins where x does.
    void (*to_bf16)(const float* x, std::uint16_t* out, std::int64_t n);
    // out[i] = x[i], exactly. They do not overlap.
    void (*from_bf16)(const std::uint16_t* x, float* out, std::int64_t n);
    // (x[j], x[half + j]) turned by the angle with the given cosines and sines.
    void (*rotate)(float* x, const float* cosines, const float* sines, std::int64_t half);

    // What training adds.
    // The same turned back.
    void (*rotate_back)(float* x, const float* cosines, const float* sines, std::int64_t half);
    // Sum of x[i] * y[i] in double.
    double (*dot)(const float* x, const float* y, std::int64_t n);
    // y[i] += factor * x[i].
    void (*add_scaled)(const float* x, float factor, float* y, std::int64_t n);
    // sum[i] += (x[i] * factor) * y[i], each product rounded to fp32.
    void (*add_products)(const float* x, float factor, const float* y, double* sum, std::int64_t n);
    // What silu_gate() passes back: dup[i] = dout[i] * silu(gate[i]), dgate[i] = dout[i] * up[i] *
    // silu'(gate[i]). dgate and dup may each be any of the inputs, but not the same.
    void (*silu_gate_backward)(const float* gate, const float* up, const float* dout, float* dgate,
                               float* dup, std::int64_t n);
    // dweight[i] = weight[i] * (dweight[i] - mean) * factor.
    void (*softmax_backward)(const float* weight, float mean, float factor, float* dweight,
                             std::int64_t n);
    // One step of AdamW, in this order, in fp32: w *= decay; with s = g * gradient_scale:
    // m += m_gain * (s - m); v = v * beta2 + v_gain * s * s;
    // w -= step_size * (m / (sqrt(v) / v_root + epsilon)).
    struct AdamwFactors {
        float gradient_scale, decay, m_gain, beta2, v_gain, v_root, epsilon, step_size;
    };
    void (*adamw)(const AdamwFactors& factors, const float* g, float* w, float* m, float* v,
                  std::int64_t n);
};

LaneLevel best_lane_level();         // of this processor
const Lanes& lanes(LaneLevel level); // a level above best_lane_level() must not be called

} // namespace foregather::kernels
