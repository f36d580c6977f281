// SPDX-License-Identifier: Apache-2.0
// Shapes that do not fit are refused with the kernel's name; calls without tokens do nothing.
#include <vector>

#include <gtest/gtest.h>

#include "host_set.hpp"

namespace foregather::kernels {
namespace {

class ShapeChecks : public ::testing::Test {
protected:
    template <class Call>
    void expect_refused(const std::string& kernel, const std::string& extent, Call call) {
        const std::string text = refusal_of(call);
        EXPECT_EQ(text.rfind(kernel + ": shapes do not fit", 0), 0U) << text;
        EXPECT_NE(text.find(extent), std::string::npos) << text;
    }
    std::vector<float> floats(std::size_t n) const { return std::vector<float>(n); }

    HostSet host_;
    Kernels& kernels_ = *host_.kernels;
    Stream& stream_ = *host_.stream;
    std::vector<std::int32_t> ids_ = {0, 1, 2};
    std::vector<std::int32_t> two_ = {0, 1};
    std::vector<float> six_ = floats(6), four_ = floats(4), five_ = floats(5);
};

TEST_F(ShapeChecks, RowKernels) {
    expect_refused("embed", "width 2",
                   [&] { kernels_.embed(ids_, 0, slab_of(four_), five_, 2, stream_); });
    expect_refused("embed", "w 5",
                   [&] { kernels_.embed(ids_, 0, slab_of(five_), six_, 2, stream_); });
    expect_refused("rms_norm", "w 4",
                   [&] { kernels_.rms_norm(six_, slab_of(four_), 0.0F, slab_of(six_), stream_); });
    expect_refused("rms_norm", "y 4",
                   [&] { kernels_.rms_norm(six_, slab_of(six_), 0.0F, slab_of(four_), stream_); });
    expect_refused("rope", "head_dim 3",
                   [&] { kernels_.rope(six_, two_, four_, four_, 1, 3, stream_); });
    expect_refused("rope", "sines 5",
                   [&] { kernels_.rope(four_, two_, four_, five_, 1, 2, stream_); });
    expect_refused("silu_gate", "up 4",
                   [&] { kernels_.silu_gate(six_, four_, slab_of(six_), stream_); });
    expect_refused("take_rows", "y 5", [&] { kernels_.take_rows(six_, two_, five_, 2, stream_); });
}

TEST_F(ShapeChecks, ProductAndAttention) {
    const auto product = [&](ConstSlab w, ConstSlab bias, Elements tokens) {
        kernels_.product(slab_of(six_), w, bias, Kernels::Into::overwrite, four_, tokens, stream_);
    };
    expect_refused("product", "w 5", [&] { product(slab_of(five_), {}, 2); });
    expect_refused("product", "bias 5", [&] { product(slab_of(six_), slab_of(five_), 2); });
    expect_refused("product", "tokens 4", [&] { product(slab_of(six_), {}, 4); });
    const std::vector<std::int32_t> offsets = {0, 2};
    expect_refused("attention", "kv_heads 2", [&] {
        kernels_.attention(six_, six_, six_, offsets, {3, 2, 1}, slab_of(six_), stream_);
    });
    expect_refused("attention", "k 5", [&] {
        kernels_.attention(six_, five_, five_, offsets, {3, 3, 1}, slab_of(six_), stream_);
    });
    expect_refused("attention", "offsets 0", [&] {
        kernels_.attention(six_, six_, six_, {}, {3, 3, 1}, slab_of(six_), stream_);
    });
}

TEST_F(ShapeChecks, Head) {
    std::vector<double> sum(2);
    std::vector<float> maximum(2), target(3), logprob(2);
    std::vector<std::int32_t> best(2);
    std::vector<std::uint8_t> greedy(2);
    const HeadState uneven{maximum, sum, target, best};
    expect_refused("head_begin", "target 3", [&] { kernels_.head_begin(uneven, stream_); });
    target.resize(2);
    const HeadState state{maximum, sum, target, best};
    expect_refused("head_piece", "w 5", [&] {
        kernels_.head_piece(slab_of(four_), slab_of(five_), 0, two_, state, stream_);
    });
    expect_refused("head_piece", "targets 3", [&] {
        kernels_.head_piece(slab_of(six_), slab_of(six_), 0, ids_, state, stream_);
    });
    expect_refused("head_end", "logprob 1", [&] {
        kernels_.head_end(state, two_, {Floats(logprob).first(1), greedy}, stream_);
    });
}

TEST_F(ShapeChecks, CallsWithoutTokensDoNothing) {
    kernels_.embed({}, 0, slab_of(six_), {}, 2, stream_);
    kernels_.rms_norm({}, slab_of(six_), 0.0F, {}, stream_);
    kernels_.product({}, slab_of(six_), {}, Kernels::Into::overwrite, {}, 0, stream_);
    kernels_.attention({}, {}, {}, std::vector<std::int32_t>{0}, {2, 1, 2}, {}, stream_);
    kernels_.take_rows(six_, {}, {}, 2, stream_);
    kernels_.head_begin({}, stream_);
    kernels_.head_piece({}, slab_of(six_), 0, {}, {}, stream_);
    kernels_.head_end({}, {}, {}, stream_);
    EXPECT_NO_THROW(stream_.sync());
}

} // namespace
} // namespace foregather::kernels
