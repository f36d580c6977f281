// SPDX-License-Identifier: Apache-2.0
// SHA-256 by OpenSSL's libcrypto, streamed. What is digested, and what follows from a difference,
// is the caller's business.
#include <foregather/io/digest.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include <openssl/evp.h>

#include <foregather/base/error.hpp>

namespace foregather::io {

namespace {

struct StreamCloser {
    static std::FILE* null() { return nullptr; }
    void operator()(std::FILE* stream) const noexcept { std::fclose(stream); }
};

void check(int ok) {
    if (ok != 1) {
        base::fail("OpenSSL failed to compute a SHA-256 digest");
    }
}

} // namespace

void Sha256::Closer::operator()(evp_md_ctx_st* context) const noexcept { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
    check(context_ ? EVP_DigestInit_ex(context_.handle(), EVP_sha256(), nullptr) : 0);
}

void Sha256::add(const void* data, std::size_t bytes) {
    check(EVP_DigestUpdate(context_.handle(), data, bytes));
    base::moved();
}

std::string Sha256::hexadecimal() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned length = 0;
    check(EVP_DigestFinal_ex(context_.handle(), digest.data(), &length));
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < length; ++i) {
        text += digits[digest[i] >> 4];
        text += digits[digest[i] & 15U];
    }
    return text;
}

std::string sha256_of_file(const std::string& path) {
    const base::Unique<std::FILE*, StreamCloser> stream(std::fopen(path.c_str(), "rb"));
    if (!stream) {
        base::refuse("cannot open " + path + " to compute its digest: " + std::strerror(errno));
    }
    Sha256 digest;
    std::vector<unsigned char> piece(std::size_t{1} << 20);
    for (std::size_t got = piece.size(); got == piece.size();) {
        got = std::fread(piece.data(), 1, piece.size(), stream.handle());
        digest.add(piece.data(), got);
    }
    if (std::ferror(stream.handle()) != 0) {
        base::refuse("cannot read " + path + " to compute its digest: " + std::strerror(errno));
    }
    return digest.hexadecimal();
}

std::string sha256_of_text(const std::string& text) {
    Sha256 digest;
    digest.add(text.data(), text.size());
    return digest.hexadecimal();
}

} // namespace foregather::io
