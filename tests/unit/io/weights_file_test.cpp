// SPDX-License-Identifier: Apache-2.0
// What a weights file gives: its manifest, and its rows byte for byte however reads are cut.
#include <foregather/io/weights_file.hpp>

#include <sys/wait.h>

#include <numeric>

#include "h5_fixture.hpp"

namespace foregather::io {
namespace {

using testing::Directory;
using testing::Writer;

std::vector<std::uint16_t> halves(std::size_t n) {
    std::vector<std::uint16_t> values(n);
    for (std::size_t i = 0; i < n; ++i) {
        values[i] = static_cast<std::uint16_t>(i * 40503U + 17U); // every bit pattern, NaNs too
    }
    return values;
}

std::vector<float> numbers(std::size_t n) {
    std::vector<float> values(n);
    std::iota(values.begin(), values.end(), 0.5F);
    return values;
}

void write_good(const std::string& path) {
    Writer file(path);
    file.attribute("format", "foregather.weights");
    file.attribute("format_version", std::int64_t{1});
    file.attribute("source", "a test");
    file.text("config", R"({"vocab_size": 97})");
    file.text("tokenizer", "abc");
    const Type bf16 = testing::bfloat16(), f16 = testing::float16();
    file.put("/weights/model/layers/0/mlp/up_proj/weight", bf16.handle(), bf16.handle(), {51, 40},
             halves(51 * 40));
    file.put("/weights/model/layers/0/mlp/up_proj/bias", f16.handle(), f16.handle(), {51},
             halves(51));
    file.put("/weights/lm_head/weight", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {97, 700},
             numbers(97 * 700));
    file.put("/weights/cube", bf16.handle(), bf16.handle(), {5, 6, 7}, halves(210));
}

TEST(WeightsFile, manifest_is_sorted_by_name_and_knows_types) {
    const Directory directory;
    write_good(directory / "w.h5");
    const WeightsFile file(directory / "w.h5");
    ASSERT_EQ(file.tensors().size(), 4U);
    EXPECT_EQ(file.tensors()[0].name, "cube");
    EXPECT_EQ(file.tensors()[1].name, "lm_head.weight");
    EXPECT_EQ(file.tensors()[2].name, "model.layers.0.mlp.up_proj.bias");
    EXPECT_EQ(file.tensors()[3].name, "model.layers.0.mlp.up_proj.weight");
    EXPECT_EQ(file.tensors()[1].type, base::DType::f32);
    EXPECT_EQ(file.tensors()[2].type, base::DType::f16);
    EXPECT_EQ(file.tensors()[3].type, base::DType::bf16);
    EXPECT_EQ(file.tensors()[3].shape, (base::Shape{51, 40}));
    EXPECT_EQ(file.find("cube")->shape, (base::Shape{5, 6, 7}));
    EXPECT_EQ(file.find("cub"), nullptr);
    EXPECT_EQ(file.find("zzz"), nullptr);
}

TEST(WeightsFile, root_is_read) {
    const Directory directory;
    write_good(directory / "w.h5");
    const WeightsFile file(directory / "w.h5");
    EXPECT_EQ(file.config_json(), R"({"vocab_size": 97})");
    EXPECT_EQ(file.source(), "a test");
    EXPECT_EQ(file.content_sha256(), "");
    EXPECT_EQ(file.tokenizer_sha256(), sha256_of_text("abc"));
    EXPECT_EQ(file.file_bytes(),
              static_cast<std::int64_t>(std::filesystem::file_size(directory / "w.h5")));
}

// Field case f3: the limit of one transfer, lowered.
class WeightsFilePieces : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(WeightsFilePieces, f3_rows_are_byte_for_byte_what_was_stored) {
    const Directory directory;
    write_good(directory / "w.h5");
    WeightsFile file(directory / "w.h5", GetParam());
    std::int64_t total = 0;
    const auto read = [&](const std::string& name, std::int64_t first, std::int64_t rows,
                          const auto& stored, std::int64_t row_elements) {
        const std::int64_t size = sizeof(stored[0]), bytes = rows * row_elements * size;
        std::vector<std::byte> out(static_cast<std::size_t>(bytes) + 1, std::byte{0xA5});
        file.read_rows(name, first, rows, out.data());
        const auto* expected = reinterpret_cast<const std::byte*>(stored.data());
        EXPECT_TRUE(std::equal(out.begin(), out.end() - 1, expected + first * row_elements * size))
            << name << " rows " << first << " + " << rows;
        EXPECT_EQ(out.back(), std::byte{0xA5});
        total += bytes;
        EXPECT_EQ(file.bytes_read(), total);
    };
    for (const auto& [first, rows] :
         {std::pair{0L, 97L}, {0L, 0L}, {3L, 1L}, {96L, 1L}, {40L, 33L}}) {
        read("lm_head.weight", first, rows, numbers(97 * 700), 700);
    }
    read("model.layers.0.mlp.up_proj.weight", 0, 51, halves(51 * 40), 40);
    read("model.layers.0.mlp.up_proj.bias", 7, 44, halves(51), 1);
    read("cube", 1, 3, halves(210), 42);
}

INSTANTIATE_TEST_SUITE_P(limits, WeightsFilePieces,
                         ::testing::Values(4, 60, 1 << 10, 3 << 10, 1 << 14, 1 << 20,
                                           default_piece_bytes));

TEST(WeightsFile, pieces_stay_below_the_limit_and_cover_the_block_once) {
    std::vector<int> seen(5 * 6 * 7, 0);
    base::Elements next = 0;
    for_each_piece({{2, 0, 0}, {5, 6, 7}}, 2, 30, [&](const Block& piece, base::Elements position) {
        EXPECT_LE(base::elements_of(piece.count) * 2, 30);
        EXPECT_EQ(position, next);
        next += base::elements_of(piece.count);
        for (std::int64_t i = 0; i < piece.count[0]; ++i) {
            for (std::int64_t j = 0; j < piece.count[1]; ++j) {
                for (std::int64_t k = 0; k < piece.count[2]; ++k) {
                    ++seen[static_cast<std::size_t>(
                        ((piece.start[0] - 2 + i) * 6 + piece.start[1] + j) * 7 + piece.start[2] +
                        k)];
                }
            }
        }
    });
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 210);
}

TEST(WeightsFile, rows_outside_a_tensor_are_an_error) {
    const Directory directory;
    write_good(directory / "w.h5");
    WeightsFile file(directory / "w.h5");
    std::vector<std::byte> out(1000);
    for (const auto& [first, rows] : {std::pair{-1L, 1L}, {0L, 6L}, {5L, 1L}, {0L, -1L}}) {
        testing::expect_error(base::Status::failed, {"cube", "which has 5"},
                              [&] { file.read_rows("cube", first, rows, out.data()); });
    }
    testing::expect_error(base::Status::failed, {"no tensor ball"},
                          [&] { file.read_rows("ball", 0, 1, out.data()); });
}

TEST(WeightsFile, f1_a_second_process_reads_the_same_file_at_once) {
    const Directory directory;
    write_good(directory / "w.h5");
    const WeightsFile mine(directory / "w.h5");
    const std::string command = "h5dump -n '" + (directory / "w.h5") + "' > /dev/null 2>&1";
    if (std::system("command -v h5dump > /dev/null") != 0) {
        GTEST_SKIP() << "h5dump is not installed";
    }
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 0);
}

TEST(WeightsFile, h5dump_shows_bfloat16_as_numbers) {
    const Directory directory;
    {
        Writer file(directory / "b.h5");
        const Type ours = file_type(base::DType::bf16);
        file.put("x", ours.handle(), ours.handle(), {2},
                 std::vector<std::uint16_t>{0x3fc0, 0xc000});
    }
    if (std::system("command -v h5dump > /dev/null") != 0) {
        GTEST_SKIP() << "h5dump is not installed";
    }
    const std::string command =
        "h5dump -d x '" + (directory / "b.h5") + "' > '" + (directory / "out") + "'";
    ASSERT_EQ(std::system(command.c_str()), 0);
    EXPECT_NE(testing::slurp(directory / "out").find("1.5, -2"), std::string::npos);
}

} // namespace
} // namespace foregather::io
