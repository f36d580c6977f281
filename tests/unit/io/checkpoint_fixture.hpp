// SPDX-License-Identifier: Apache-2.0
// A small model in units that ranks cut everywhere, every value of it different, and its
// checkpoints. What is expected of the stored file is told by the tests.
#pragma once

#include <bit>
#include <cstring>

#include <foregather/io/checkpoint_folder.hpp>
#include <foregather/shard/load.hpp>
#include <foregather/shard/save.hpp>

#include "h5_fixture.hpp"

namespace foregather::io::testing {

// An embedding in two pieces; a layer of matrices, of few and of many rows, and of short vectors.
inline std::vector<shard::UnitSpec> toy_units() {
    std::vector<shard::UnitSpec> units(3);
    units[0].name = "embedding.0";
    units[0].append("model.embed.weight", {61, 7}, 0, 40);
    units[1].name = "embedding.1";
    units[1].append("model.embed.weight", {61, 7}, 40, 21);
    units[2].name = "layer.0";
    units[2].append("model.layers.0.wide.weight", {2, 500}, 0, 2);
    units[2].append("model.layers.0.norm.weight", {5}, 0, 5);
    units[2].append("model.layers.0.deep.weight", {3, 5, 11}, 0, 3);
    units[2].append("model.layers.0.one.bias", {1}, 0, 1);
    units[2].append("model.norm.weight", {300}, 0, 300);
    return units;
}

// Another bit pattern for every element of every tensor of every set: NaNs and infinities too.
inline float toy_value(TensorSet set, const std::string& tensor, std::int64_t element,
                       std::int64_t step) {
    std::uint64_t word = static_cast<std::uint64_t>(element) * 0x9e3779b97f4a7c15;
    for (const char letter : tensor) {
        word = (word ^ static_cast<std::uint64_t>(letter)) * 0x100000001b3;
    }
    word += static_cast<std::uint64_t>(set) * 977 + static_cast<std::uint64_t>(step) * 7919;
    word = (word ^ (word >> 31)) * 0xbf58476d1ce4e5b9;
    return std::bit_cast<float>(static_cast<std::uint32_t>(word >> 32));
}

// A rank's part of a unit as it must be, padding zero.
inline std::vector<float> toy_part(TensorSet set, const shard::UnitSpec& unit,
                                   const shard::ShardLayout& layout, int rank, std::int64_t step) {
    std::vector<float> whole(static_cast<std::size_t>(layout.padded()));
    for (const shard::TensorPart& part : unit.parts) {
        for (std::int64_t e = 0; e < part.elements(); ++e) {
            whole[static_cast<std::size_t>(part.offset + e)] =
                toy_value(set, part.tensor, part.first_row * part.row_elements() + e, step);
        }
    }
    const auto begin = whole.begin() + rank * layout.per_rank();
    return {begin, begin + layout.per_rank()};
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline CheckpointContent toy_content(std::int64_t step, bool moments = true) {
    CheckpointContent content;
    content.tensors = shard::tensors_of(toy_units());
    content.moments = moments;
    content.config_json = R"({"model_type": "llama"})";
    content.tokenizer_json = R"({"version": "1.0", "text": "ümlaut"})";
    content.tokenizer_sha256 = std::string(64, 'a');
    content.source = "a toy";
    content.state = {step, step - 1, 1, 2, 17, -5, {{"batch.tokens", "256"}, {"a", "b = c"}},
                     {},   {}};
    for (std::int64_t s = 1; s <= step; ++s) {
        const auto x = static_cast<double>(s);
        content.state.history.step.push_back(s);
        content.state.history.loss.push_back(1.0 / x);
        content.state.history.gradient_norm.push_back(x / 3.0);
        content.state.history.learning_rate.push_back(1e-3 / x);
        content.state.history.tokens.push_back(100 + s);
        if (s % 2 == 0) {
            content.state.evaluations.step.push_back(s);
            content.state.evaluations.loss.push_back(2.0 / x);
            content.state.evaluations.tokens.push_back(1000 + s);
        }
    }
    return content;
}

// Writes this rank's parts. Ranks of a second replica write nothing.
inline void write_parts(CheckpointWriter& writer, const CheckpointContent& content, int rank,
                        int ranks, bool first_replica = true) {
    for (const TensorSet set : all_tensor_sets) {
        for (const shard::UnitSpec& unit : toy_units()) {
            const shard::ShardLayout layout(unit.elements, ranks);
            if (first_replica && (content.moments || set == TensorSet::weights)) {
                shard::save(writer, set, unit, layout, rank,
                            toy_part(set, unit, layout, rank, content.state.step));
            }
        }
    }
}

inline std::string save_toy(const mesh::Control& control, const std::string& directory,
                            const CheckpointContent& content, std::int64_t keep = 0,
                            std::int64_t piece_bytes = default_piece_bytes) {
    CheckpointWriter writer(control, directory, content, piece_bytes);
    writer.fill([&] { write_parts(writer, content, control.rank(), control.size()); });
    return writer.finish(keep);
}

// Every set of a checkpoint as `ranks` ranks would load it.
inline void expect_toy(const Checkpoint& checkpoint, int ranks) {
    for (const TensorSet set : all_tensor_sets) {
        if (set != TensorSet::weights && !checkpoint.has_moments()) {
            continue;
        }
        WeightsFile file = checkpoint.open(set);
        shard::Loader loader(file, {4096});
        for (const shard::UnitSpec& unit : toy_units()) {
            const shard::ShardLayout layout(unit.elements, ranks);
            for (int rank = 0; rank < ranks; ++rank) {
                std::vector<float> part(static_cast<std::size_t>(layout.per_rank()), -1.0F);
                shard::InPlace destination{base::View<float>(part)};
                loader.load(unit, layout, rank, destination);
                EXPECT_TRUE(
                    same_bits(part, toy_part(set, unit, layout, rank, checkpoint.state().step)))
                    << group_of(set) << ", " << unit.name << ", rank " << rank << " of " << ranks;
            }
        }
    }
}

} // namespace foregather::io::testing
