// SPDX-License-Identifier: Apache-2.0
// AdamW against PyTorch, sums of squares, adding, rounding and clearing.
#include "gradients.hpp"

namespace foregather::kernels {
namespace {

// What PyTorch 2 makes of this, printed with "%.9g" after each step:
//   o = torch.optim.AdamW([w], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
//   for g in (...): w.grad = torch.tensor(g); o.step(); s = o.state[w]
//       print(w, s["exp_avg"], s["exp_avg_sq"])
struct Step {
    std::vector<float> g, w, m, v;
};
const std::vector<float> start = {1.0F, -2.0F, 0.5F, 3.0F, -0.25F};
const std::vector<Step> steps = {
    {{0.5F, -1.0F, 2.0F, 0.0F, 1e-4F},
     {0.989000022F, -1.98800004F, 0.489500016F, 2.99699998F, -0.259748995F},
     {0.0500000007F, -0.100000001F, 0.200000003F, 0.0F, 9.99999975e-06F},
     {0.0125000002F, 0.0500000007F, 0.200000003F, 0.0F, 4.99999986e-10F}},
    {{0.25F, 1.0F, -3.0F, 0.0F, 2e-4F},
     {0.978618145F, -1.98653841F, 0.491475642F, 2.99400306F, -0.269068509F},
     {0.0700000003F, 0.0100000026F, -0.120000005F, 0.0F, 2.89999989e-05F},
     {0.0149999997F, 0.0974999964F, 0.639999986F, 0.0F, 2.47499998e-09F}},
    {{-1.5F, 0.125F, 1.0F, 4.0F, -3e-4F},
     {0.981045008F, -1.98553228F, 0.49112162F, 2.98477674F, -0.268142879F},
     {-0.0870000049F, 0.0215000026F, -0.00800000224F, 0.400000006F, -3.90000196e-06F},
     {0.126750007F, 0.0934062451F, 0.657999992F, 0.800000012F, 6.85125023e-09F}}};

AdamwStep numbered(std::int64_t step) {
    AdamwStep s;
    s.learning_rate = 0.01;
    s.weight_decay = 0.1;
    s.step = step;
    return s;
}

// Within rounding of the terms that each entry is made of: itself and this step's gradient.
void expect_close(const std::vector<float>& got, const std::vector<float>& expected,
                  const std::vector<float>& gradient, const std::string& what) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const float term = std::max(std::abs(expected[i]), std::abs(gradient[i]));
        EXPECT_NEAR(got[i], expected[i], 1.2e-7F * term) << what << ' ' << i;
    }
}

TEST(Adamw, FollowsPyTorchForThreeSteps) {
    TrainingSet host(2);
    std::vector<float> w = start, m(5), v(5);
    std::vector<std::uint16_t> copy(5);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        std::vector<float> doubled = steps[i].g;
        for (float& g : doubled) {
            g *= 2;
        }
        AdamwStep step = numbered(static_cast<std::int64_t>(i) + 1);
        step.gradient_scale = 0.5;
        host.training.adamw(w, doubled, m, v, step, slab_of_bits(copy), *host.stream);
        host.stream->sync();
        const std::string which = std::to_string(i + 1);
        expect_close(w, steps[i].w, std::vector<float>(5), "weights after step " + which);
        expect_close(m, steps[i].m, steps[i].g, "first moments after step " + which);
        expect_close(v, steps[i].v, std::vector<float>(5), "second moments after step " + which);
        EXPECT_EQ(copy, Rounded(w).bits);
    }
}

TEST(Adamw, OfAShardIsThatOfItsPartsOnAnyNumberOfThreads) {
    const std::size_t n = 40000, cut = 17003;
    const std::vector<float> g = numbers(n, 1), before = numbers(n, 2);
    TrainingSet three(3), one(1);
    std::vector<float> w = before, m(n), v(n), w2 = before, m2(n), v2(n), copy = nans(n);
    three.training.adamw(w, g, m, v, numbered(7), slab_of(copy), *three.stream);
    for (const auto& [first, count] : {std::pair{std::size_t{0}, cut}, {cut, n - cut}}) {
        const auto of = [&, first = first, count = count](std::vector<float>& x) {
            return Floats(x).subspan(first, count);
        };
        one.training.adamw(of(w2), ConstFloats(g).subspan(first, count), of(m2), of(v2),
                           numbered(7), {}, *one.stream);
    }
    three.stream->sync();
    one.stream->sync();
    EXPECT_EQ(w, w2);
    EXPECT_EQ(m, m2);
    EXPECT_EQ(v, v2);
    EXPECT_EQ(copy, w);
}

TEST(Adamw, RefusesAStepBeforeTheFirst) {
    TrainingSet host;
    std::vector<float> w(2), m(2), v(2);
    const std::string text =
        refusal_of([&] { host.training.adamw(w, w, m, v, numbered(0), {}, *host.stream); });
    EXPECT_NE(text.find("adamw: step 0"), std::string::npos) << text;
}

TEST(SumOfSquares, IsSummedInDoubleWithTheSameBitsOnAnyNumberOfThreads) {
    const std::vector<float> x = numbers(200001, 1, 1000.0F);
    double exact = 0;
    for (const float value : x) {
        exact += static_cast<double>(value) * static_cast<double>(value);
    }
    const std::vector<float> more = {3, 4};
    std::vector<double> expected;
    for (const int threads : {1, 3}) {
        TrainingSet host(threads);
        std::vector<double> sum = {std::nan("")};
        host.training.sum_of_squares(x, Into::overwrite, sum, *host.stream);
        host.stream->sync();
        EXPECT_NEAR(sum[0], exact, 1e-13 * exact);
        expected = threads == 1 ? sum : expected;
        EXPECT_EQ(sum, expected);
        host.training.sum_of_squares(more, Into::add, sum, *host.stream);
        host.training.sum_of_squares({}, Into::add, sum, *host.stream);
        host.stream->sync();
        EXPECT_DOUBLE_EQ(sum[0], expected[0] + 25.0);
    }
}

TEST(Gradients, AreAddedScaledRoundedAndCleared) {
    TrainingSet host(2);
    const std::vector<float> x = numbers(40001, 1), first = numbers(40001, 2);
    const Rounded rounded(x);
    std::vector<float> sum = first, half = first, copy = nans(40001), cleared = first;
    std::vector<std::uint16_t> bits(40001);
    host.training.add(slab_of(x), sum, *host.stream);
    host.training.add(rounded.slab(), half, *host.stream);
    host.training.scale(half, 0.5F, *host.stream);
    host.training.convert(x, slab_of(copy), *host.stream);
    host.training.convert(x, slab_of_bits(bits), *host.stream);
    host.training.clear(cleared, *host.stream);
    host.stream->sync();
    EXPECT_EQ(copy, x);
    EXPECT_EQ(bits, rounded.bits);
    for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(sum[i], first[i] + x[i]);
        ASSERT_EQ(half[i], (first[i] + rounded.values[i]) * 0.5F);
        ASSERT_EQ(cleared[i], 0.0F);
    }
}

TEST(TrainingShapes, ThatDoNotFitAreRefusedWithTheKernelsName) {
    TrainingSet host;
    TrainingKernels& k = host.training;
    Stream& stream = *host.stream;
    std::vector<float> four(4), five(5), six(6);
    std::vector<double> two_sums(2);
    std::vector<std::uint16_t> bits(6);
    const std::vector<std::int32_t> two = {0, 1};
    const std::vector<std::int32_t> offsets = {0, 2};
    const auto expect_refused = [](const std::string& begin, const std::string& part, auto call) {
        const std::string text = refusal_of(call);
        EXPECT_EQ(text.rfind(begin + ": ", 0), 0U) << text;
        EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    constexpr Into set = Into::overwrite;
    expect_refused("convert", "y 4", [&] { k.convert(six, slab_of(four), stream); });
    expect_refused("product_input_gradient", "w 5", [&] {
        k.product_input_gradient(slab_of(four), slab_of(five), set, six, 2, stream);
    });
    expect_refused("product_input_gradient", "one type", [&] {
        k.product_input_gradient(slab_of(four), slab_of_bits(bits), set, six, 2, stream);
    });
    expect_refused("product_weight_gradient", "dbias 5", [&] {
        k.product_weight_gradient(slab_of(four), slab_of(six), set, six, five, 2, stream);
    });
    expect_refused("rms_norm_backward", "dy 4", [&] {
        k.rms_norm_backward(six, slab_of(six), 0, four, set, six, set, six, stream);
    });
    expect_refused("rope_backward", "sines 5",
                   [&] { k.rope_backward(four, two, four, five, 1, 2, stream); });
    expect_refused("attention_backward", "lse 4", [&] {
        k.attention_backward(six, six, six, slab_of(six), four, six, offsets, {3, 3, 1}, six, six,
                             six, stream);
    });
    expect_refused("silu_gate_backward", "dup 5", [&] {
        k.silu_gate_backward(six, six, six, slab_of(six), slab_of(five), stream);
    });
    expect_refused("embed_backward", "dx 6",
                   [&] { k.embed_backward(two, 0, six, set, four, 2, stream); });
    expect_refused("take_rows_backward", "dy 6",
                   [&] { k.take_rows_backward(six, two, four, 2, stream); });
    expect_refused("loss", "sum 2", [&] { k.loss({}, {}, set, two_sums, stream); });
    expect_refused("head_backward", "dw 4", [&] {
        std::vector<float> two_floats(2);
        const HeadState state{two_floats, two_sums, two_floats, View<std::int32_t>()};
        k.head_backward(slab_of(four), slab_of(six), 0, two, state, 1.0F, set, four, set, four,
                        stream);
    });
    expect_refused("adamw", "v 4", [&] { k.adamw(six, six, six, four, {}, {}, stream); });
    expect_refused("sum_of_squares", "sum 2",
                   [&] { k.sum_of_squares(six, set, two_sums, stream); });
    expect_refused("add", "x 5", [&] { k.add(slab_of(five), six, stream); });
}

} // namespace
} // namespace foregather::kernels
