// SPDX-License-Identifier: Apache-2.0
// Results that are written in many pieces: the same file to the byte as in one, and no write of
// HDF5 is larger than was asked.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <numeric>

#include "../../unit/io/results_fixture.hpp"

namespace {

// What the writes of this process were, of arrays; a scalar (a text) is one element.
std::int64_t largest_write = 0, writes = 0;

} // namespace

// Between the program and the library: looks, and hands on.
extern "C" herr_t H5Dwrite(hid_t dataset, hid_t memory_type, hid_t memory, hid_t file,
                           hid_t transfer, const void* values) {
    using Write = herr_t (*)(hid_t, hid_t, hid_t, hid_t, hid_t, const void*);
    static const auto hand_on = reinterpret_cast<Write>(::dlsym(RTLD_NEXT, "H5Dwrite"));
    if (memory != H5S_ALL) {
        const auto elements = static_cast<std::int64_t>(H5Sget_select_npoints(memory));
        const std::int64_t bytes = elements * static_cast<std::int64_t>(H5Tget_size(memory_type));
        largest_write = std::max(largest_write, bytes);
        ++writes;
    }
    return hand_on(dataset, memory_type, memory, file, transfer, values);
}

namespace foregather::io {
namespace {

using namespace testing;

constexpr std::int64_t vocabulary = 7, width = 5, top = 3;

// Values 1, 2, 3, ... from a first one on.
template <class T>
std::vector<T> counted(std::int64_t from, std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), static_cast<T>(from + 1));
    return values;
}

Table table_at(const std::string& path) {
    return {path,
            {{"time", "s", "a time", counted<double>(0, 11)},
             {"value", "1", "a value", counted<float>(20, 11)},
             {"count", "1", "a count", counted<std::int64_t>(3, 11)},
             {"flag", "1", "a flag", counted<std::uint8_t>(5, 11)},
             {"name", "", "a name", std::vector<std::string>(11, "name")}},
            {}};
}

class ResultsPiecesTest : public ::testing::Test {
protected:
    ResultsPiecesTest() {
        if (world.first()) {
            write_tokens(directory / "t.h5");
        }
        world.barrier();
    }

    // What each rank has of all tokens' rows: those whose turn it is.
    static void write_rows(const mesh::Control& control, ResultsFile& file) {
        for (std::int64_t first = 0; first < offsets.back(); first += 5) {
            if (first / 5 % control.size() != control.rank()) {
                continue;
            }
            const auto entropy = counted<float>(first, 5);
            const auto tokens = counted<std::int32_t>(first * top, 5 * top);
            const auto logprobs = counted<float>(first * top, 5 * top);
            const auto logits = counted<float>(first * vocabulary, 5 * vocabulary);
            const auto hidden = counted<float>(first * width, 5 * width);
            file.write_rows(first, 5, {entropy, tokens, logprobs, logits, hidden});
        }
    }

    // A whole run of score by the ranks of `control`; the file's bytes, once all of them are there.
    std::string score(const mesh::Control& control, std::int64_t piece_bytes) const {
        const std::string path = directory / "score.h5";
        const TokenFile tokens(directory / "t.h5");
        ResultsFile file(control, {path, true, "scores", false, piece_bytes},
                         ScoreLayout{tokens, 6, true, top, vocabulary, width},
                         {table_at("/provenance/first")}, {});
        write_share(control, file);
        write_rows(control, file);
        file.finish(file.summarise(), {table_at("/timing/last")}, {});
        return slurp(path);
    }

    // The same of train, by its first rank.
    std::string train(const mesh::Control& control, std::int64_t piece_bytes) const {
        const std::string path = directory / "train.h5";
        ResultsFile file(control, {path, true, "training", false, piece_bytes}, std::nullopt, {},
                         {}, std::nullopt, TrainLayout{9, 6, 13});
        if (control.first()) {
            const auto reals = counted<double>(0, 9);
            const auto integers = counted<std::int64_t>(0, 13);
            const auto nine = counted<std::int64_t>(0, 9);
            file.write_steps(0, {nine, reals, reals, reals, nine});
            file.write_evaluations(0, {counted<std::int64_t>(0, 6), counted<double>(0, 6),
                                       counted<std::int64_t>(0, 6)});
            file.write_items(0, {integers, integers, integers});
        }
        file.finish(std::nullopt, {}, {});
        return slurp(path);
    }

    // Alone in one piece, then together in pieces of these sizes.
    void expect_same_in_pieces(
        const std::function<std::string(const mesh::Control&, std::int64_t)>& file) const {
        std::string whole;
        if (world.first()) {
            const mesh::Control alone(MPI_COMM_SELF);
            whole = file(alone, default_piece_bytes);
        }
        world.barrier();
        for (const std::int64_t piece_bytes : {8, 12, 64}) {
            largest_write = writes = 0;
            const std::string cut = file(world, piece_bytes);
            EXPECT_LE(largest_write, piece_bytes);
            if (world.first()) {
                EXPECT_GT(writes, 1);
                EXPECT_TRUE(cut == whole) << piece_bytes;
            }
            world.barrier();
        }
    }

    const mesh::Control world{MPI_COMM_WORLD};
    const SharedDirectory directory{world};
};

TEST_F(ResultsPiecesTest, scores_rows_and_tables_are_the_same_to_the_byte_in_whatever_pieces) {
    expect_same_in_pieces([&](const auto& control, std::int64_t n) { return score(control, n); });
}

TEST_F(ResultsPiecesTest, rows_of_training_are_the_same_to_the_byte_in_whatever_pieces) {
    expect_same_in_pieces([&](const auto& control, std::int64_t n) { return train(control, n); });
}

} // namespace
} // namespace foregather::io
