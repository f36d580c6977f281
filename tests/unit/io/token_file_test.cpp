// SPDX-License-Identifier: Apache-2.0
// What a token file gives, and every contradiction that is refused; field case T24 as a table.
#include <foregather/io/token_file.hpp>

#include "h5_fixture.hpp"

namespace foregather::io {
namespace {

using testing::Directory;
using testing::expect_refused;
using testing::good;
using testing::Writer;
using Ints = std::vector<std::int64_t>;

class TokenFileTest : public ::testing::Test {
protected:
    void write(
        hid_t type, const Ints& tokens, const Ints& offsets,
        const std::function<void(Writer&)>& more = [](Writer&) {}) {
        Writer file(path);
        file.integers("tokens", type, tokens);
        file.integers("offsets", H5T_STD_I64LE, offsets);
        more(file);
    }
    void refused(std::vector<std::string> words) {
        words.push_back(path);
        expect_refused(words, [&] { TokenFile{path}; });
    }

    const Directory directory;
    const std::string path = directory / "t.h5";
};

TEST_F(TokenFileTest, documents_and_their_facts) {
    write(H5T_STD_U32LE, {7, 8, 9, 10}, {0, 1, 1, 4}, [](Writer& f) {
        f.integers("score_from", H5T_STD_I32LE, {0, 5, 2});
        f.integers("bytes", H5T_STD_I64LE, {3, 0, 11});
        f.integers("id", H5T_STD_I16LE, {100, 101, 102});
        f.attribute("tokenizer_sha256", "t");
        f.attribute("content_sha256", "c");
        f.attribute("source", "s");
        f.attribute("vocab_size", std::int64_t{70001});
    });
    const TokenFile file(path);
    EXPECT_EQ(file.tokens(), 4);
    EXPECT_EQ(file.documents(), 3);
    EXPECT_EQ(file.offsets(), (Ints{0, 1, 1, 4}));
    EXPECT_EQ(file.score_from(0), 1); // nothing predicts a first token
    EXPECT_EQ(file.score_from(1), 5);
    EXPECT_EQ(file.score_from(2), 2);
    EXPECT_TRUE(file.has_bytes());
    EXPECT_EQ(file.bytes(2), 11);
    EXPECT_TRUE(file.has_ids());
    EXPECT_EQ(file.tokenizer_sha256() + file.content_sha256() + file.source(), "tcs");
    EXPECT_EQ(file.vocab_size(), 70001);
    EXPECT_EQ(file.read(1, 3), (std::vector<std::int32_t>{8, 9, 10}));
    EXPECT_EQ(file.read(4, 0), std::vector<std::int32_t>{});
    testing::expect_error(base::Status::failed, {"which has 4"}, [&] { file.read(2, 3); });
}

TEST_F(TokenFileTest, absent_facts_have_defaults) {
    write(H5T_STD_I64LE, {1}, {0, 1});
    const TokenFile file(path);
    EXPECT_EQ(file.score_from(0), 1);
    EXPECT_FALSE(file.has_bytes());
    EXPECT_FALSE(file.has_ids());
    EXPECT_EQ(file.tokenizer_sha256(), "");
    EXPECT_EQ(file.vocab_size(), 0);
}

TEST_F(TokenFileTest, no_documents_and_no_tokens_are_legal) {
    write(H5T_STD_I64LE, {}, {0});
    const TokenFile file(path);
    EXPECT_EQ(file.documents(), 0);
    EXPECT_NO_THROW(file.check_ids(5));
}

// Field case T24, i1: any integer type holds ids, and none is wrapped or clipped.
TEST_F(TokenFileTest, T24_ids_are_the_same_in_every_integer_type) {
    for (const hid_t type : {H5T_STD_I64LE, H5T_STD_U32LE, H5T_STD_I32LE, H5T_STD_U64LE,
                             H5T_STD_I64BE, H5T_STD_U32BE}) {
        write(type, {5, 70000, 5}, {0, 3});
        const TokenFile file(path);
        EXPECT_NO_THROW(file.check_ids(70001));
        EXPECT_EQ(file.read(0, 3), (std::vector<std::int32_t>{5, 70000, 5}));
    }
    for (const hid_t type : {H5T_STD_U16LE, H5T_STD_U16BE}) {
        write(type, {5, 65535, 5}, {0, 3});
        const TokenFile file(path);
        EXPECT_NO_THROW(file.check_ids(70001));
        EXPECT_EQ(file.read(0, 3), (std::vector<std::int32_t>{5, 65535, 5}));
    }
}

TEST_F(TokenFileTest, T24_ids_outside_the_vocabulary_are_refused_with_their_place) {
    write(H5T_STD_I16LE, {5, 6, -1, 7}, {0, 1, 1, 4});
    expect_refused({path, "/tokens[2] is -1", "document 2, token 1 in it", "70001 ids, 0 to 70000"},
                   [&] { TokenFile{path}.check_ids(70001); });
    write(H5T_STD_I64LE, {5, 70001, 5}, {0, 3});
    expect_refused({"/tokens[1] is 70001", "document 0, token 1 in it"},
                   [&] { TokenFile{path}.check_ids(70001); });
    write(H5T_STD_U32LE, {5, 5, 70001}, {0, 2, 2, 2, 3});
    expect_refused({"/tokens[2] is 70001", "document 3, token 0 in it"},
                   [&] { TokenFile{path}.check_ids(70001); });
}

TEST_F(TokenFileTest, ids_beyond_63_bits_are_told_as_they_are) {
    {
        Writer file(path);
        file.put("tokens", H5T_STD_U64LE, H5T_NATIVE_UINT64, {2},
                 std::vector<std::uint64_t>{1, 18446744073709551615U});
        file.integers("offsets", H5T_STD_I64LE, {0, 2});
    }
    expect_refused({"/tokens[1] is 18446744073709551615"}, [&] { TokenFile{path}.check_ids(5); });
    expect_refused({"/tokens[1]", "no vocabulary has such an id"},
                   [&] { TokenFile{path}.read(0, 2); });
    write(H5T_STD_I64LE, {4294967297}, {0, 1});
    expect_refused({"/tokens[0] is 4294967297"}, [&] { TokenFile{path}.read(0, 1); });
}

TEST_F(TokenFileTest, every_id_of_a_stream_of_several_pieces_is_checked) {
    constexpr std::int64_t n = (std::int64_t{2} << 20) + 3;
    for (const std::int64_t bad : {n - 1, std::int64_t{1} << 20}) {
        Ints tokens(n, 1);
        tokens[static_cast<std::size_t>(bad)] = 9;
        write(H5T_STD_U8LE, tokens, {0, 10, n});
        const TokenFile file(path);
        EXPECT_NO_THROW(file.check_ids(10));
        expect_refused({"/tokens[" + std::to_string(bad) + "] is 9", "document 1"},
                       [&] { file.check_ids(9); });
    }
}

TEST_F(TokenFileTest, T24_tokens_that_are_no_row_of_integers) {
    {
        Writer file(path);
        file.put("tokens", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {3}, std::vector<float>{5, 6, 5});
        file.integers("offsets", H5T_STD_I64LE, {0, 3});
    }
    refused({"/tokens must hold integers", "float32"});
    {
        Writer file(path);
        file.put("tokens", H5T_STD_I32LE, H5T_NATIVE_INT64, {1, 3}, Ints{5, 6, 5});
        file.integers("offsets", H5T_STD_I64LE, {0, 3});
    }
    refused({"/tokens must have one dimension", "has 2"});
    { Writer file(path); }
    refused({"/tokens is missing", "make it with tools/tokenize"});
    {
        Writer file(path);
        file.create("tokens", H5T_STD_I32LE, {3});
    }
    refused({"/tokens holds no data"});
}

TEST_F(TokenFileTest, T24_offsets_that_contradict_the_tokens) {
    write(H5T_STD_I64LE, {5, 6, 7}, {0, 3, 2});
    refused({"/offsets[2] is 2", "below the entry before it, 3"});
    write(H5T_STD_I64LE, {5, 6, 7}, {0, 4});
    refused({"/offsets[1] is 4", "/tokens", "3 entries"});
    write(H5T_STD_I64LE, {5, 6, 7}, {0, 2});
    refused({"/offsets[1] is 2", "3 entries"});
    write(H5T_STD_I64LE, {5, 6, 7}, {1, 3});
    refused({"/offsets[0] is 1", "start at token 0"});
    write(H5T_STD_I64LE, {5, 6, 7}, {});
    refused({"/offsets is empty"});
    {
        Writer file(path);
        file.integers("tokens", H5T_STD_I64LE, {1});
    }
    refused({"/offsets is missing"});
}

TEST_F(TokenFileTest, facts_that_do_not_fit_the_documents) {
    const auto with = [&](const std::function<void(Writer&)>& more) {
        write(H5T_STD_I64LE, {5, 6, 7}, {0, 1, 3}, more);
    };
    with([](Writer& f) { f.integers("score_from", H5T_STD_I64LE, {1, -2}); });
    refused({"/score_from[1] is -2", "negative"});
    with([](Writer& f) { f.integers("score_from", H5T_STD_I64LE, {1}); });
    refused({"/score_from has 1 entries for 2 documents"});
    with([](Writer& f) { f.integers("bytes", H5T_STD_I64LE, {-1, 1}); });
    refused({"/bytes[0] is -1"});
    with([](Writer& f) { f.integers("bytes", H5T_STD_I64LE, {1, 1, 1}); });
    refused({"/bytes has 3 entries for 2 documents"});
    with([](Writer& f) {
        f.put("id", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {2}, std::vector<float>(2));
    });
    refused({"/id must hold strings of fixed length or integers", "float32"});
    with([](Writer& f) { f.integers("id", H5T_STD_I64LE, {1}); });
    refused({"/id must have one entry for each of 2 documents"});
    with([](Writer& f) { f.text("id", "a"); });
    refused({"/id must hold strings of fixed length", "variable-length string"});
}

TEST_F(TokenFileTest, storage_elsewhere_or_filtered) {
    const hsize_t chunk = 2;
    const Plist packed(good(H5Pcreate(H5P_DATASET_CREATE)));
    good(H5Pset_chunk(packed.handle(), 1, &chunk));
    good(H5Pset_fletcher32(packed.handle()));
    {
        Writer file(path);
        file.put("tokens", H5T_STD_I64LE, H5T_NATIVE_INT64, {3}, Ints{1, 2, 3}, packed.handle());
        file.integers("offsets", H5T_STD_I64LE, {0, 3});
    }
    refused({"/tokens is stored through a filter (fletcher32)"});
    write(H5T_STD_I64LE, {1}, {0, 1}, [](Writer& f) {
        good(H5Lcreate_external("other.h5", "/b", f.handle(), "bytes", H5P_DEFAULT, H5P_DEFAULT));
    });
    refused({"/bytes is a link into another file"});
    expect_refused({"No such file", "token file"}, [&] { TokenFile{directory / "none"}; });
}

} // namespace
} // namespace foregather::io
