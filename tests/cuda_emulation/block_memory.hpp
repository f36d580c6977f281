// SPDX-License-Identifier: Apache-2.0
// Shared memory of an emulated block: each piece of exactly the size that was asked for, so that an
// address sanitizer knows where it ends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace foregather::emulation {

class BlockMemory {
public:
    explicit BlockMemory(std::size_t dynamic_bytes) { add(nullptr, dynamic_bytes); }

    // All of it becomes bytes 0xFF: NaN in floats of any size.
    void begin_block() {
        for (const Piece& piece : pieces_) {
            std::memset(piece.memory.get(), 0xFF, piece.bytes);
        }
    }
    std::byte* dynamic() const { return pieces_.front().memory.get(); }
    // The memory for `key`, which is not null; made where there is none yet.
    std::byte* keyed(const void* key, std::size_t bytes) {
        for (const Piece& piece : pieces_) {
            if (piece.key == key) {
                return piece.memory.get();
            }
        }
        return add(key, bytes);
    }

private:
    static constexpr std::align_val_t alignment{128};
    struct Delete {
        void operator()(std::byte* memory) const { ::operator delete[](memory, alignment); }
    };
    struct Piece {
        const void* key;
        std::size_t bytes;
        std::unique_ptr<std::byte[], Delete> memory;
    };

    std::byte* add(const void* key, std::size_t bytes) {
        void* memory = ::operator new[](std::max<std::size_t>(bytes, 1), alignment);
        std::memset(memory, 0xFF, bytes);
        pieces_.push_back({key, bytes, {}});
        pieces_.back().memory.reset(static_cast<std::byte*>(memory));
        return pieces_.back().memory.get();
    }

    std::vector<Piece> pieces_; // the first is the dynamic one
};

} // namespace foregather::emulation
