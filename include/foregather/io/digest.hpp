// SPDX-License-Identifier: Apache-2.0
// SHA-256 of files and texts, for provenance, and a count of bytes that a watchdog may read.
// What is digested, and what follows from a difference, is the caller's business.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace foregather::io {

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

    void add(std::int64_t bytes) { count_.fetch_add(bytes, std::memory_order_relaxed); }
    std::int64_t count() const { return count_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::int64_t> count_ = 0;
};

} // namespace foregather::io
