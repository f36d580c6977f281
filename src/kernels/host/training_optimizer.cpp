// SPDX-License-Identifier: Apache-2.0
// AdamW on shards, and what is done with gradients before it: sums of squares, adding, scaling. It
// knows nothing of tensors: who decays is decided by the caller.
#include "training.hpp"

#include <array>
#include <cmath>

namespace foregather::kernels {
namespace {

constexpr Elements entries_at_a_time = 16384;
constexpr Elements entries_widened = 1024;
constexpr Elements squares_at_a_time = 65536;
constexpr Elements most_partial_sums = 32768;
static_assert(2 * most_partial_sums <= block_floats);

// As PyTorch computes them: in double, rounded where they meet the tensors. The powers are taken in
// long double, which is the same code on every x86-64 processor.
Lanes::AdamwFactors factors_of(const AdamwStep& s) {
    const auto rest = [&](double beta) {
        return static_cast<double>(
            1.0L - std::pow(static_cast<long double>(beta), static_cast<long double>(s.step)));
    };
    return {static_cast<float>(s.gradient_scale),
            static_cast<float>(1.0 - s.learning_rate * s.weight_decay),
            static_cast<float>(1.0 - s.beta1),
            static_cast<float>(s.beta2),
            static_cast<float>(1.0 - s.beta2),
            static_cast<float>(std::sqrt(rest(s.beta2))),
            static_cast<float>(s.epsilon),
            static_cast<float>(s.learning_rate / rest(s.beta1))};
}

} // namespace

void HostTraining::do_adamw(Floats w, ConstFloats g, Floats m, Floats v, const AdamwStep& step,
                            Slab copy, Stream& stream) {
    if (copy.n > 0) {
        require_computable(copy, "adamw");
    }
    const auto n = static_cast<Elements>(w.size());
    const Lanes::AdamwFactors factors = factors_of(step);
    enqueue_rows(stream, n, entries_at_a_time, [=, this](Elements begin, Elements end, int) {
        const Elements here = end - begin;
        float* weights = w.data() + begin;
        lanes_.adamw(factors, g.data() + begin, weights, m.data() + begin, v.data() + begin, here);
        if (copy.n > 0 && copy.type == base::DType::bf16) {
            lanes_.to_bf16(weights, copy.bf16() + begin, here);
        } else if (copy.n > 0) {
            std::copy_n(weights, here, copy.f32() + begin);
        }
    });
}

void HostTraining::do_sum_of_squares(ConstFloats x, Into into, View<double> sum, Stream& stream) {
    const auto n = static_cast<Elements>(x.size());
    const Elements block = std::max(squares_at_a_time, blocks_of(n, most_partial_sums));
    device::HostStream& host = checked(stream);
    host.enqueue([=, this, &host] {
        auto* parts = reinterpret_cast<double*>(scratch_of(0));
        each_block(host, n, block, [&](Elements begin, Elements end, int) {
            parts[begin / block] = lanes_.sum_of_squares(x.data() + begin, end - begin);
        });
        double total = into == Into::add ? sum[0] : 0.0;
        for (Elements b = 0; b < blocks_of(n, block); ++b) {
            total += parts[b];
        }
        sum[0] = total;
    });
}

void HostTraining::do_add(ConstSlab x, Floats accumulator, Stream& stream) {
    require_computable(x, "add");
    enqueue_rows(stream, x.n, entries_at_a_time, [=, this](Elements begin, Elements end, int) {
        float* to = accumulator.data();
        if (x.type == base::DType::f32) {
            lanes_.add_scaled(x.f32() + begin, 1.0F, to + begin, end - begin);
            return;
        }
        std::array<float, entries_widened> wide;
        for (Elements first = begin; first < end; first += entries_widened) {
            const Elements n = std::min(entries_widened, end - first);
            lanes_.from_bf16(x.bf16() + first, wide.data(), n);
            lanes_.add_scaled(wide.data(), 1.0F, to + first, n);
        }
    });
}

void HostTraining::do_scale(Floats x, float factor, Stream& stream) {
    const auto n = static_cast<Elements>(x.size());
    enqueue_rows(stream, n, entries_at_a_time, [=, this](Elements begin, Elements end, int) {
        lanes_.scale(x.data() + begin, factor, end - begin);
    });
}

void HostTraining::do_clear(Floats x, Stream& stream) {
    const auto n = static_cast<Elements>(x.size());
    enqueue_rows(stream, n, entries_at_a_time, [=](Elements begin, Elements end, int) {
        std::fill(x.data() + begin, x.data() + end, 0.0F);
    });
}

} // namespace foregather::kernels
