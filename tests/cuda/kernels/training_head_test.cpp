// SPDX-License-Identifier: Apache-2.0
// Loss and gradients of the head: emulated device kernels against the host's, by pieces in any
// order, across blocks of tokens and vocabulary rows, with rows that have no target.
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "training_set.hpp"

namespace foregather::kernels {
namespace {

using base::DType;

struct Result {
    std::vector<double> loss;
    std::vector<float> gradients; // dx, then dw
};

using kernels::same_bits;

bool same_bits(const Result& a, const Result& b) {
    return same_bits(a.loss, b.loss) && same_bits(a.gradients, b.gradients);
}

struct Head {
    std::size_t scored, vocabulary, width = 8;
    DType type = DType::f32;
    Into into = Into::overwrite;
    float scale = 1.0F;                                      // of logits
    std::vector<std::pair<std::size_t, std::size_t>> pieces; // first row, rows
    std::vector<std::int32_t> targets;

    Head(std::size_t s, std::size_t v) : scored(s), vocabulary(v), pieces{{0, v}} {
        for (std::size_t i = 0; i < s; ++i) {
            targets.push_back(i % 4 == 3 ? -1 : static_cast<std::int32_t>(i * 7 % v));
        }
    }

    Result run(HostSet& set) const {
        Numbers x(with_room(numbers(scored * width, 1, 2.0F), scored), type);
        const ConstSlab rows = ConstSlab(x.slab()).part(0, static_cast<Elements>(scored * width));
        DeviceVector<float> maximum(nothing_yet(scored)), target(nothing_yet(scored)),
            dx(with_room(start_of(into, scored * width, 3), scored));
        DeviceVector<double> sum(std::vector<double>(scored, 1.0)),
            loss(std::vector<double>(1, into == Into::add ? 2.5 : nan));
        DeviceVector<std::int32_t> best(std::vector<std::int32_t>(scored, 0)), ids(targets);
        HeadState state{*maximum, *sum, *target, *best};
        state.scale = scale;
        const std::vector<float> w = numbers(vocabulary * width, 2, 2.0F);
        const auto piece_of = [&](std::size_t first, std::size_t n) {
            const auto begin = w.begin() + static_cast<std::ptrdiff_t>(first * width);
            return Numbers({begin, begin + static_cast<std::ptrdiff_t>(n * width)}, type);
        };
        set.kernels->head_begin(state, *set.stream);
        for (const auto& [first, n] : pieces) {
            Numbers piece = piece_of(first, n);
            set.kernels->head_piece(rows, piece.slab(), static_cast<Elements>(first), Ids(*ids),
                                    state, *set.stream);
            set.stream->sync();
        }
        TrainingKernels& training = set.kernels->training();
        training.loss(state, Ids(*ids), into, *loss, *set.stream);
        set.stream->sync();
        Result result{*loss, {}};
        std::vector<float> all_dw;
        Into into_dx = into;
        for (const auto& [first, n] : pieces) {
            Numbers piece = piece_of(first, n);
            DeviceVector<float> dw(start_of(into, n * width, 4));
            training.head_backward(rows, piece.slab(), static_cast<Elements>(first), Ids(*ids),
                                   state, 0.125F, into_dx, Floats(*dx).first(scored * width), into,
                                   *dw, *set.stream);
            set.stream->sync();
            into_dx = Into::add;
            all_dw.insert(all_dw.end(), dw->begin(), dw->end());
        }
        result.gradients = first_of(*dx, scored * width);
        result.gradients.insert(result.gradients.end(), all_dw.begin(), all_dw.end());
        return result;
    }

    void expect_the_hosts() const {
        expect_near(emulated([&](HostSet& set) { return run(set); }));
    }
    void expect_near(const Result& cuda) const {
        const Result host = on_host([&](HostSet& set) { return run(set); });
        EXPECT_NEAR(cuda.loss[0], host.loss[0], 1e-6 * std::abs(host.loss[0]) + 1e-12);
        // Of bf16 gradients of logits a few may be rounded the other way.
        EXPECT_LE(worst_difference(cuda.gradients, host.gradients),
                  type == DType::f32 ? 3e-6 : 1e-3);
    }
};

TEST(HeadBackwardOnCuda, IsTheHosts) {
    for (const std::size_t vocabulary : {1U, 3U, 257U}) {
        for (const DType type : both_types) {
            for (const Into into : both_ways) {
                Head head(6, vocabulary);
                head.type = type;
                head.into = into;
                head.expect_the_hosts();
            }
        }
    }
}

TEST(HeadBackwardOnCuda, TakesPiecesInAnyOrderAndATemperature) {
    Head head(5, 301);
    head.pieces = {{100, 150}, {0, 100}, {250, 51}};
    head.scale = 0.7F;
    for (const DType type : both_types) {
        head.type = type;
        head.expect_the_hosts();
    }
}

TEST(HeadBackwardOnCuda, CutsManyTokensAndRowsIntoBlocks) {
    HostSet set = cuda_set(); // one order of threads: many blocks take long
    Head head(1030, 12);
    head.width = 2;
    head.expect_near(head.run(set));
    Head wide(2, 8192 + 6);
    wide.width = 1;
    wide.targets = {8191, 8192};
    wide.expect_near(wide.run(set));
}

TEST(LossOnCuda, GoesThroughManyRows) {
    const auto run = [](HostSet& set) {
        DeviceVector<float> maximum(numbers(700, 1)), target(numbers(700, 2));
        DeviceVector<double> sum(std::vector<double>(700, 2.0)), loss(std::vector<double>(1, 1.0));
        DeviceVector<std::int32_t> best(std::vector<std::int32_t>(700, 0)),
            ids(std::vector<std::int32_t>(700, 0));
        (*ids)[300] = -1;
        set.kernels->training().loss({*maximum, *sum, *target, *best}, Ids(*ids), Into::add, *loss,
                                     *set.stream);
        set.stream->sync();
        return *loss;
    };
    EXPECT_NEAR(emulated(run)[0], on_host(run)[0], 1e-12 * 700);
}

TEST(HeadBackwardOnCuda, ALossWithAnUnseenTargetIsNoNumber) {
    Head head(3, 10);
    head.targets = {1, 10, -1};
    HostSet set = cuda_set();
    EXPECT_TRUE(std::isnan(head.run(set).loss[0]));
}

TEST(HeadBackwardOnCuda, APieceWithoutRowsAndAPackWithoutTokensClearWhatTheyOverwrite) {
    HostSet set = cuda_set();
    TrainingKernels& training = set.kernels->training();
    DeviceVector<float> x(with_room(numbers(2 * 4, 1), 2)), dx(with_room(numbers(2 * 4, 2), 2)),
        dw(numbers(3 * 4, 3)), maximum(numbers(2, 4)), target(numbers(2, 5));
    DeviceVector<double> sum(std::vector<double>(2, 1.0)), loss(std::vector<double>(1, 7.0));
    DeviceVector<std::int32_t> best(std::vector<std::int32_t>(2, 0)), ids({0, 1});
    training.head_backward(ConstFloats(*x).first(8), ConstFloats(), 0, Ids(*ids),
                           {*maximum, *sum, *target, *best}, 1.0F, Into::overwrite,
                           Floats(*dx).first(8), Into::overwrite, {}, *set.stream);
    EXPECT_TRUE(same_bits(first_of(*dx, 8), std::vector<float>(8)));
    training.head_backward({}, ConstFloats(*dw), 0, {}, {}, 1.0F, Into::overwrite, {},
                           Into::overwrite, *dw, *set.stream);
    EXPECT_TRUE(same_bits(*dw, std::vector<float>(12)));
    training.loss({}, {}, Into::overwrite, *loss, *set.stream);
    EXPECT_EQ((*loss)[0], 0.0);
}

} // namespace
} // namespace foregather::kernels
