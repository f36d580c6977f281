// SPDX-License-Identifier: Apache-2.0
// SHA-256 of files, texts and what is fed piece by piece, and a count of bytes that a watchdog may
// read. What is digested, and what follows from a difference, is the caller's business.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <foregather/base/error.hpp>
#include <foregather/base/moves.hpp>

struct evp_md_ctx_st; // OpenSSL's EVP_MD_CTX

namespace foregather::io {

// A digest that is fed piece by piece.
class Sha256 {
public:
    Sha256();
    void add(const void* data, std::size_t bytes);
    // Lower-case hexadecimal, 64 characters. Ends it: nothing may be added afterwards.
    std::string hexadecimal();

private:
    struct Closer {
        static evp_md_ctx_st* null() { return nullptr; }
        void operator()(evp_md_ctx_st* context) const noexcept;
    };
    base::Unique<evp_md_ctx_st*, Closer> context_;
};

// Lower-case hexadecimal, 64 characters. Streams the file; throws Error(refused) when it cannot.
std::string sha256_of_file(const std::string& path);
std::string sha256_of_text(const std::string& text);

// A count of bytes moved so far: added to by the main thread, read by any.
class ByteCount {
public:
    ByteCount() = default;
    ByteCount(ByteCount&& other) noexcept : count_(other.count()) {}
    ByteCount& operator=(ByteCount&& other) noexcept {
        count_.store(other.count(), std::memory_order_relaxed);
        return *this;
    }

    void add(std::int64_t bytes) {
        count_.fetch_add(bytes, std::memory_order_relaxed);
        base::moved();
    }
    std::int64_t count() const { return count_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::int64_t> count_ = 0;
};

} // namespace foregather::io
