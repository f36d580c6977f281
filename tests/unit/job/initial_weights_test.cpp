// SPDX-License-Identifier: Apache-2.0
// Random weights: normal, each element its own, and the same however they are divided over ranks.
#include "../../../src/job/initial_weights.hpp"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include <foregather/io/convert.hpp>

namespace foregather::job {
namespace {

const std::string name = "model.embed_tokens.weight";

std::vector<float> drawn(const InitialWeights& weights, const std::string& tensor, base::Elements n,
                         base::Elements first = 0) {
    std::vector<float> values(static_cast<std::size_t>(n));
    weights.fill(tensor, {n, 1}, first, values);
    return values;
}

shard::UnitSpec layer() {
    shard::UnitSpec unit;
    unit.name = "layer.0";
    unit.append("layers.0.norm.weight", {51}, 0, 51);
    unit.append("layers.0.q_proj.weight", {53, 51}, 0, 53);
    unit.append("layers.0.q_proj.bias", {53}, 0, 53);
    unit.append("embedding.weight", {97, 51}, 20, 40); // rows of a tensor that is cut
    return unit;
}

// Parts of all ranks, one after another, handed out in pieces of at most `most`.
class Pieces final : public shard::Destination {
public:
    Pieces(const base::Slab& part, base::Elements most) : part_(part), most_(most) {}
    base::Elements size() const override { return part_.n; }
    base::DType type() const override { return part_.type; }
    base::Slab next(base::Elements n) override {
        EXPECT_LE(n, most_);
        return part_.part((at_ += n) - n, n);
    }
    base::Elements most() const override { return most_; }
    void end() override { EXPECT_EQ(at_, part_.n); }

private:
    base::Slab part_;
    base::Elements most_, at_ = 0;
};

std::vector<float> whole_unit(int ranks, base::Elements most) {
    const shard::UnitSpec unit = layer();
    const shard::ShardLayout layout(unit.elements, ranks);
    std::vector<float> whole(static_cast<std::size_t>(layout.padded()), -1.0F);
    for (int rank = 0; rank < ranks; ++rank) {
        InitialWeights weights(7, 0.02);
        Pieces part(
            base::Slab(base::View<float>(whole)).part(rank * layout.per_rank(), layout.per_rank()),
            most);
        weights.fill(unit, layout, rank, part);
    }
    return whole;
}

// Values from the same formulas, computed in Python with its hashlib and math.
TEST(InitialWeights, AreThoseOfTheGeneratorThatIsNamed) {
    const InitialWeights weights(7, 0.02);
    const std::vector<std::pair<base::Elements, double>> expected = {
        {0, -0.01319568944536343},
        {1, 0.02109970489386145},
        {2, 0.01304985353993332},
        {12345678901, 0.011437700065721514}};
    for (const auto& [index, value] : expected) {
        EXPECT_NEAR(drawn(weights, name, 1, index)[0], value, 1e-9) << index;
    }
}

TEST(InitialWeights, AreNormal) {
    const double deviation = 0.05;
    const auto values = drawn({3, deviation}, name, 1'000'000);
    double mean = 0, square = 0, cube = 0, fourth = 0, neighbours = 0;
    double before = 0;
    for (const float value : values) {
        const double x = static_cast<double>(value) / deviation;
        mean += x;
        square += x * x;
        cube += x * x * x;
        fourth += x * x * x * x;
        neighbours += x * before;
        before = x;
    }
    const double n = static_cast<double>(values.size());
    // Standard errors: 1, sqrt 2, sqrt 15, sqrt 96 and 1, over sqrt n.
    EXPECT_NEAR(mean / n, 0, 0.005);
    EXPECT_NEAR(square / n, 1, 0.007);
    EXPECT_NEAR(cube / n, 0, 0.02);
    EXPECT_NEAR(fourth / n, 3, 0.05);
    EXPECT_NEAR(neighbours / n, 0, 0.005);
    const auto inside =
        std::count_if(values.begin(), values.end(), [&](float x) { return std::fabs(x) < 0.05F; });
    EXPECT_NEAR(static_cast<double>(inside) / n, 0.682689, 0.003);
    std::vector<float> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_GT(std::unique(sorted.begin(), sorted.end()) - sorted.begin(), 900'000);
}

TEST(InitialWeights, FollowFromSeedNameAndIndex) {
    const auto values = drawn({7, 0.02}, name, 1000);
    EXPECT_EQ(drawn({7, 0.02}, name, 501, 499),
              std::vector<float>(values.begin() + 499, values.end()));
    for (const auto& other : {drawn({8, 0.02}, name, 1000), drawn({7, 0.02}, name + "x", 1000),
                              drawn({7, 0.02}, name, 1000, 1)}) {
        std::size_t equal = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            equal += other[i] == values[i] ? 1 : 0;
        }
        EXPECT_LT(equal, 3u);
    }
}

TEST(InitialWeights, AreTheSameAtAnyNumberOfRanksAndInAnyPieces) {
    const shard::UnitSpec unit = layer();
    std::vector<float> expected = whole_unit(1, 1 << 20);
    expected.resize(static_cast<std::size_t>(unit.elements));
    for (const int ranks : {2, 3, 7, 64}) {
        for (const base::Elements most : {1, 100, 1 << 20}) {
            std::vector<float> whole = whole_unit(ranks, most);
            for (std::size_t i = expected.size(); i < whole.size(); ++i) {
                EXPECT_EQ(whole[i], 0.0F); // padding
            }
            whole.resize(expected.size());
            EXPECT_EQ(whole, expected) << ranks << " ranks, pieces of " << most;
        }
    }
}

TEST(InitialWeights, AreOneInNormsZeroInBiasesAndBetweenTensors) {
    const shard::UnitSpec unit = layer();
    const std::vector<float> whole = whole_unit(1, 1 << 20);
    const auto values = [&](std::size_t part) {
        const auto first = whole.begin() + unit.parts[part].offset;
        return std::vector<float>(first, first + unit.parts[part].elements());
    };
    EXPECT_EQ(values(0), std::vector<float>(51, 1.0F));
    EXPECT_EQ(values(2), std::vector<float>(53, 0.0F));
    EXPECT_EQ(values(1), drawn({7, 0.02}, "layers.0.q_proj.weight", 53 * 51));
    EXPECT_EQ(values(3), drawn({7, 0.02}, "embedding.weight", 40 * 51, 20 * 51));
    for (std::size_t i = 51; i < 128; ++i) {
        EXPECT_EQ(whole[i], 0.0F);
    }
}

TEST(InitialWeights, AreRoundedToBfloat16) {
    const shard::UnitSpec unit = layer();
    const shard::ShardLayout layout(unit.elements, 2);
    const std::vector<float> whole = whole_unit(2, 1 << 20);
    std::vector<std::uint16_t> part(static_cast<std::size_t>(layout.per_rank())), expected(part);
    InitialWeights weights(7, 0.02);
    Pieces destination(
        {reinterpret_cast<std::byte*>(part.data()), layout.per_rank(), base::DType::bf16}, 1000);
    weights.fill(unit, layout, 1, destination);
    io::f32_to_bf16(whole.data() + layout.per_rank(), layout.per_rank(), expected.data());
    EXPECT_EQ(part, expected);
}

} // namespace
} // namespace foregather::job
