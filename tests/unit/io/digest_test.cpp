// SPDX-License-Identifier: Apache-2.0
// Digests against the published examples of SHA-256 (FIPS 180-2, appendix B).
#include <foregather/io/digest.hpp>

#include "h5_fixture.hpp"

namespace foregather::io {
namespace {

TEST(Digest, published_examples) {
    EXPECT_EQ(sha256_of_text("abc"),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256_of_text(""),
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Digest, file_of_a_million_letters_and_one_of_whole_pieces) {
    const testing::Directory directory;
    testing::spill(directory / "a", std::string(1000000, 'a'));
    EXPECT_EQ(sha256_of_file(directory / "a"),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    const std::string pieces(std::size_t{2} << 20, 'b');
    testing::spill(directory / "b", pieces);
    EXPECT_EQ(sha256_of_file(directory / "b"), sha256_of_text(pieces));
}

TEST(Digest, missing_file_and_directory_are_refused_by_name) {
    const testing::Directory directory;
    testing::expect_refused({directory / "none", "No such file"},
                            [&] { sha256_of_file(directory / "none"); });
    testing::expect_refused({"Is a directory"}, [&] { sha256_of_file(directory / "."); });
}

} // namespace
} // namespace foregather::io
