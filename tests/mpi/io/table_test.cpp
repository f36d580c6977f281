// SPDX-License-Identifier: Apache-2.0
// Tables and texts as other tools see them: plain columns, units, labels, fixed-length strings.
#include <foregather/io/table.hpp>

#include <hdf5_hl.h>
#include <mpi.h>

#include <array>

#include "../../unit/io/results_fixture.hpp"

namespace foregather::io {
namespace {

using namespace testing;

class TableTest : public ::testing::Test {
protected:
    TableTest() : path(directory / "x.h5"), file(create_shared(path, MPI_COMM_SELF)) {}

    const Directory directory; // each rank has its own
    const std::string path;
    File file;
};

TEST_F(TableTest, columns_of_every_type_keep_their_values) {
    const Table table{
        "/timing/phases",
        {{"f", "s", "a float", std::vector<float>{0.5F, -1.0F}},
         {"d", "nat", "a double", std::vector<double>{0.1, 1e300}},
         {"i", "byte", "an integer", std::vector<std::int64_t>{-1, std::int64_t{1} << 62}},
         {"u", "1", "a flag", std::vector<std::uint8_t>{0, 255}},
         {"name", "", "a name", std::vector<std::string>{"gather", "späte"}}},
        {{"tokens_per_second", 12.5}, {"ranks", std::int64_t{3}}, {"host", std::string("h")}},
        "phase"};
    EXPECT_EQ(write_table(file, table), 2 * (4 + 8 + 8 + 1 + 6));
    close(file, path);
    EXPECT_EQ(all_of<float>(path, "/timing/phases/f"), (std::vector<float>{0.5F, -1.0F}));
    EXPECT_EQ(all_of<double>(path, "/timing/phases/d"), (std::vector<double>{0.1, 1e300}));
    EXPECT_EQ(all_of<std::int64_t>(path, "/timing/phases/i"),
              (std::vector<std::int64_t>{-1, std::int64_t{1} << 62}));
    EXPECT_EQ(all_of<std::uint8_t>(path, "/timing/phases/u"), (std::vector<std::uint8_t>{0, 255}));
    EXPECT_EQ(raw_text(path, "/timing/phases/name"), "gatherspäte");
    EXPECT_EQ(string_attribute(path, "/timing/phases/d", "units"), "nat");
    EXPECT_EQ(string_attribute(path, "/timing/phases/d", "long_name"), "a double");
    EXPECT_FALSE(has_attribute(path, "/timing/phases/name", "units"));
    EXPECT_EQ(number_attribute(path, "/timing/phases", "tokens_per_second"), 12.5);
    EXPECT_EQ(number_attribute(path, "/timing/phases", "ranks"), 3.0);
    EXPECT_EQ(string_attribute(path, "/timing/phases", "host"), "h");
}

TEST_F(TableTest, dimensions_are_labelled_and_strings_are_fixed_null_padded_utf8) {
    write_table(file,
                {"/t", {{"s", "", "", std::vector<std::string>{"a", "bcd"}}}, {}, "document"});
    const Dataset dataset(good(H5Dopen2(file.handle(), "/t/s", H5P_DEFAULT)));
    std::array<char, 32> label{};
    good(H5DSget_label(dataset.handle(), 0, label.data(), label.size()));
    EXPECT_STREQ(label.data(), "document");
    const Type type(good(H5Dget_type(dataset.handle())));
    EXPECT_EQ(H5Tis_variable_str(type.handle()), 0);
    EXPECT_EQ(H5Tget_size(type.handle()), 3U);
    EXPECT_EQ(H5Tget_strpad(type.handle()), H5T_STR_NULLPAD);
    EXPECT_EQ(H5Tget_cset(type.handle()), H5T_CSET_UTF8);
    const Plist creation(good(H5Dget_create_plist(dataset.handle())));
    EXPECT_EQ(H5Pget_layout(creation.handle()), H5D_CONTIGUOUS);
}

TEST_F(TableTest, empty_tables_strings_and_texts_are_stored_and_read) {
    EXPECT_EQ(write_table(file, {"/none", {}, {}}), 0);
    write_table(file, {"/empty",
                       {{"i", "s", "", std::vector<std::int64_t>{}},
                        {"s", "", "", std::vector<std::string>{}}},
                       {{"text", std::string()}}});
    write_table(file, {"/blank", {{"s", "", "", std::vector<std::string>{"", ""}}}, {}});
    write_text(file, {"/a/b/c/text", ""});
    close(file, path);
    EXPECT_EQ(all_of<std::int64_t>(path, "/empty/i"), std::vector<std::int64_t>{});
    EXPECT_EQ(string_attribute(path, "/empty", "text"), "");
    EXPECT_EQ(raw_text(path, "/blank/s"), std::string(2, '\0'));
    const File again = open_input(path, "test");
    const Dataset text(good(H5Dopen2(again.handle(), "/a/b/c/text", H5P_DEFAULT)));
    EXPECT_EQ(read_text(text, "text"), "");
}

TEST_F(TableTest, f6_text_of_80_kB_is_byte_equal_and_an_attribute_of_that_size_an_error) {
    std::string deck;
    while (deck.size() < 80000) {
        deck += "# a comment, number " + std::to_string(deck.size()) + " — with ümlauts\n";
    }
    EXPECT_EQ(write_text(file, {"/provenance/deck_text", deck}), std::ssize(deck));
    expect_error(base::Status::failed, {"attribute deck", "must be a dataset"},
                 [&] { write_attribute(file.handle(), "deck", deck); });
    close(file, path);
    EXPECT_EQ(raw_text(path, "/provenance/deck_text"), deck);
    const File again = open_input(path, "test");
    const Dataset text(good(H5Dopen2(again.handle(), "/provenance/deck_text", H5P_DEFAULT)));
    EXPECT_EQ(read_text(text, "deck_text"), deck);
}

TEST_F(TableTest, text_of_3_MB_is_byte_equal) {
    std::string text(3000001, 'x');
    text.back() = 'y';
    write_text(file, {"/tokenizer", text});
    close(file, path);
    EXPECT_TRUE(raw_text(path, "/tokenizer") == text);
}

TEST_F(TableTest, files_grow_by_no_more_than_was_said) {
    std::vector<Table> tables;
    std::vector<Text> texts;
    for (int t = 0; t < 20; ++t) {
        Table table{"/group/table" + std::to_string(t), {}, {}};
        for (int c = 0; c < 1 + t; ++c) {
            table.columns.push_back({"column" + std::to_string(c), "ns", std::string(300, 'l'),
                                     std::vector<std::int64_t>(static_cast<std::size_t>(5 * t))});
            table.attributes.emplace_back("attribute" + std::to_string(c), std::string(500, 'v'));
        }
        table.columns.push_back(
            {"name", "", "", std::vector<std::string>(static_cast<std::size_t>(5 * t), "name")});
        tables.push_back(table);
        texts.push_back({"/texts/" + std::to_string(t), std::string(77, 't')});
    }
    for (const Table& table : tables) {
        write_table(file, table);
    }
    for (const Text& text : texts) {
        write_text(file, text);
    }
    close(file, path);
    EXPECT_LE(static_cast<std::int64_t>(std::filesystem::file_size(path)),
              room_for(tables, texts).count);
}

TEST_F(TableTest, same_path_twice_is_an_error_that_names_it) {
    write_text(file, {"/a", "1"});
    expect_error(base::Status::failed, {"put /a into its place"}, [&] {
        write_text(file, {"/a", "2"});
    });
}

TEST_F(TableTest, files_of_equal_content_are_equal_to_the_byte) {
    const std::string other = directory / "y.h5";
    const auto fill = [](const File& target) {
        write_table(target, {"/g/t", {{"s", "1", "n", std::vector<std::string>{"a", "b"}}}, {}});
        write_text(target, {"/h/text", "x"});
    };
    fill(file);
    close(file, path);
    ::sleep(1); // a time stamp, in whole seconds, would differ now
    File second = create_shared(other, MPI_COMM_SELF);
    fill(second);
    close(second, other);
    EXPECT_EQ(slurp(path), slurp(other));
}

} // namespace
} // namespace foregather::io
