// SPDX-License-Identifier: Apache-2.0
// Gradients of products as the program makes them on a GPU, on the doubles of CUDA and cuBLASLt:
// shapes that were prepared, strides, transpositions and rows rounded up, against plain sums; and
// the head, whose blocks of logits are multiplied three times.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <foregather/device/cuda_device.hpp>
#include <foregather/kernels/cuda_kernels.hpp>
#include <foregather/kernels/training.hpp>

#include "../../cuda_emulation/doubles_test.hpp"
#include "../../unit/kernels/gradients.hpp"

namespace foregather::kernels {
namespace {

using base::DType;
using device::Buffer, device::HostBuffer;

// The memory of a GPU, and what was put there.
class Gpu {
public:
    // Rows of a product, of either type; behind them NaN up to the next multiple of rows.
    ConstSlab rows(const std::vector<float>& values, std::size_t rows, DType type) {
        const auto n = static_cast<Elements>(values.size());
        const auto count = static_cast<Elements>(rows);
        const Elements multiple = cuda_row_multiple;
        std::vector<float> all = values;
        all.resize(
            static_cast<std::size_t>(n / count * ((count + multiple - 1) / multiple) * multiple),
            std::nanf(""));
        return slab(all, type).part(0, n);
    }
    Slab slab(const std::vector<float>& values, DType type) {
        const auto n = static_cast<Elements>(values.size());
        const Slab there = room(base::bytes_of(n, type).count, n, type);
        if (type == DType::f32) {
            copy_in(values, there);
        } else {
            copy_in(Rounded(values).bits, there);
        }
        return there;
    }
    Floats floats(const std::vector<float>& values) {
        return {slab(values, DType::f32).f32(), values.size()};
    }
    template <class T>
    View<T> array(const std::vector<T>& values) {
        const Slab there =
            room(static_cast<std::int64_t>(values.size() * sizeof(T)), 0, DType::f32);
        copy_in(values, there);
        return {reinterpret_cast<T*>(there.data), values.size()};
    }
    template <class T>
    std::vector<T> back(View<T> view) {
        const HostBuffer<T> out(*device, static_cast<Elements>(view.size()), "results");
        device->copy_out(View<const T>(view), out.view(), *stream);
        stream->sync();
        return {out.view().begin(), out.view().end()};
    }

    emulation::Emulation emulation;
    std::unique_ptr<device::Device> device = device::make_cuda_device(0);
    std::unique_ptr<Stream> stream = device->stream("compute", device::Priority::normal);
    std::unique_ptr<Kernels> kernels = make_cuda_kernels(*device, false);

private:
    Slab room(std::int64_t bytes, Elements n, DType type) {
        memory_.push_back({*device, bytes, "an operand"});
        return {memory_.back().view().data(), n, type};
    }
    template <class T>
    void copy_in(const std::vector<T>& values, const Slab& to) {
        const auto n = static_cast<Elements>(values.size());
        const HostBuffer<T> from(*device, n, "an operand's values");
        std::memcpy(from.view().data(), values.data(), values.size() * sizeof(T));
        device->copy_in(View<const T>(from.view()),
                        View<T>(reinterpret_cast<T*>(to.data), values.size()), *stream);
        stream->sync();
    }

    std::vector<Buffer<std::byte>> memory_;
};

std::vector<float> values_of(const std::vector<float>& x, DType type) {
    return type == DType::f32 ? x : Rounded(x).values;
}

void expect_plain_sums(Gpu& gpu, DType type, Into into) {
    const std::size_t tokens = 300, in = 24, out = 40;
    std::vector<ProductShape> shapes;
    for (const Product product : {Product::input_gradient, Product::weight_gradient}) {
        shapes.push_back({512, 24, 40, type, false, into, false, product});
    }
    gpu.kernels->prepare(shapes);
    const std::vector<float> x = numbers(tokens * in, 1), w = numbers(out * in, 2);
    const std::vector<float> dy = numbers(tokens * out, 3);
    const bool add = into == Into::add;
    const std::vector<float> dx_start = numbers(512 * in, 4), dw_start = numbers(out * in, 5);
    const ConstSlab dy_there = gpu.rows(dy, tokens, type);
    const Floats dx = gpu.floats(dx_start).first(tokens * in), dw = gpu.floats(dw_start);
    const Floats dbias = gpu.floats(std::vector<float>(out, 0.0F));
    TrainingKernels& training = gpu.kernels->training();
    training.product_weight_gradient(dy_there, gpu.rows(x, tokens, type), into, dw, dbias, 300,
                                     *gpu.stream);
    training.product_input_gradient(dy_there, gpu.slab(w, type), into, dx, 300, *gpu.stream);
    Doubles exact_dx(tokens * in), exact_dw(out * in), exact_dbias(out);
    const auto a = values_of(x, type), b = values_of(w, type), d = values_of(dy, type);
    for (std::size_t i = 0; add && i < exact_dx.size(); ++i) {
        exact_dx[i] = static_cast<double>(dx_start[i]);
    }
    for (std::size_t i = 0; add && i < exact_dw.size(); ++i) {
        exact_dw[i] = static_cast<double>(dw_start[i]);
    }
    for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t o = 0; o < out; ++o) {
            const auto slope = static_cast<double>(d[t * out + o]);
            exact_dbias[o] += slope;
            for (std::size_t i = 0; i < in; ++i) {
                exact_dx[t * in + i] += slope * static_cast<double>(b[o * in + i]);
                exact_dw[o * in + i] += slope * static_cast<double>(a[t * in + i]);
            }
        }
    }
    EXPECT_LT(error_of(gpu.back(dx), exact_dx), 1e-6) << base::name_of(type) << add;
    EXPECT_LT(error_of(gpu.back(dw), exact_dw), 1e-6) << base::name_of(type) << add;
    EXPECT_LT(error_of(gpu.back(dbias), exact_dbias), 1e-6) << base::name_of(type) << add;
}

TEST(CudaTrainingProducts, ArePlainSumsOverTheTokensAlone) {
    Gpu gpu;
    for (const DType type : {DType::f32, DType::bf16}) {
        for (const Into into : {Into::overwrite, Into::add}) {
            expect_plain_sums(gpu, type, into);
        }
    }
    const std::string told = gpu.kernels->algorithms();
    for (const char* part : {"512 rows, 24 -> 40 fp32, the input's gradient:",
                             "bf16, the weight's gradient, added:"}) {
        EXPECT_NE(told.find(part), std::string::npos) << part << " in " << told;
    }
    EXPECT_EQ(emulation::counted("reports"), 0);
}

TEST(CudaTrainingProducts, ThatWereNotPreparedAreRefused) {
    Gpu gpu;
    gpu.kernels->prepare(std::vector<ProductShape>{{256, 8, 8}});
    const ConstSlab x = gpu.rows(numbers(8, 1), 1, DType::f32);
    const Floats dw = gpu.floats(numbers(64, 2));
    EXPECT_NE(refusal_of([&] {
                  gpu.kernels->training().product_weight_gradient(x, x, Into::overwrite, dw, {}, 1,
                                                                  *gpu.stream);
              }).find("the weight's gradient was not prepared"),
              std::string::npos);
    gpu.stream->sync();
}

// Forward and backward of a head of one piece.
void head(Kernels& kernels, Stream& stream, ConstSlab x, ConstSlab w, Ids targets, HeadState state,
          Floats dx, Floats dw) {
    kernels.head_begin(state, stream);
    kernels.head_piece(x, w, 0, targets, state, stream);
    kernels.training().head_backward(x, w, 0, targets, state, 0.5F, Into::overwrite, dx,
                                     Into::overwrite, dw, stream);
    stream.sync();
}

void expect_the_hosts_head(std::size_t scored, std::size_t rows, DType type) {
    constexpr std::size_t width = 8;
    const std::vector<float> x = numbers(scored * width, 1, 2.0F), w = numbers(rows * width, 2);
    std::vector<std::int32_t> targets;
    for (std::size_t s = 0; s < scored; ++s) {
        targets.push_back(s % 5 == 4 ? -1 : static_cast<std::int32_t>(s * 4100 % rows));
    }
    Gpu gpu;
    std::vector<ProductShape> shapes;
    for (const Product product :
         {Product::output, Product::input_gradient, Product::weight_gradient}) {
        shapes.push_back({static_cast<Elements>(scored), static_cast<Elements>(width),
                          static_cast<Elements>(rows), type, false, Into::overwrite, true,
                          product});
    }
    gpu.kernels->prepare(shapes);
    const HeadState state{gpu.floats(nans(scored)), gpu.array(std::vector<double>(scored)),
                          gpu.floats(nans(scored)), gpu.array(std::vector<std::int32_t>(scored))};
    const Floats dx = gpu.floats(nans((scored + 256) * width)).first(scored * width);
    const Floats dw = gpu.floats(nans(rows * width));
    head(*gpu.kernels, *gpu.stream, gpu.rows(x, scored, type), gpu.slab(w, type),
         gpu.array(targets), state, dx, dw);

    TrainingSet host;
    std::vector<float> maximum(scored), target(scored), host_dx(x.size()), host_dw(w.size());
    std::vector<double> sum(scored);
    std::vector<std::int32_t> best(scored);
    const Rounded x_bits(x), w_bits(w);
    const bool fp32 = type == DType::f32;
    head(*host.kernels, *host.stream, fp32 ? slab_of(x) : x_bits.slab(),
         fp32 ? slab_of(w) : w_bits.slab(), targets, {maximum, sum, target, best}, host_dx,
         host_dw);
    // Of bf16 gradients of logits a few may be rounded the other way.
    const double tolerance = fp32 ? 1e-5 : 1e-3;
    EXPECT_LT(error_of(gpu.back(dx), wide(host_dx)), tolerance) << base::name_of(type);
    EXPECT_LT(error_of(gpu.back(dw), wide(host_dw)), tolerance) << base::name_of(type);
    EXPECT_EQ(emulation::counted("reports"), 0);
}

TEST(CudaTrainingProducts, OfTheHeadGoThroughBlocksOfTokensAndRows) {
    for (const DType type : {DType::f32, DType::bf16}) {
        expect_the_hosts_head(3, 8192 + 24, type);
        expect_the_hosts_head(1030, 24, type);
    }
}

} // namespace
} // namespace foregather::kernels
