// SPDX-License-Identifier: Apache-2.0
// The instructions that the device's header of this name wraps, written after the PTX
// ISA's description of which lane holds what. Sums are taken term by term in fp32. Tests only.
#pragma once

#include <bit>
#include <cstdint>

#include "launch.cuh"

namespace foregather::kernels {

inline std::uint64_t address_bits(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address);
}

template <class T>
const T* address_of(std::uint64_t bits) {
    return reinterpret_cast<const T*>(static_cast<std::uintptr_t>(bits));
}

// Row and column in each 8 x 8 matrix of the first of a lane's two numbers; the second is `next`
// numbers of the same row, or, transposed, as many rows further.
inline void load_matrices_by(unsigned (&to)[4], const std::uint16_t* row, bool transposed,
                             std::source_location where) {
    if (address_bits(row) % 16 != 0) {
        base::fail("ldmatrix: the address of a row is no multiple of 16 bytes");
    }
    const std::uint64_t* rows =
        emulation::exchange("ldmatrix", 0xFFFFFFFFU, address_bits(row), where);
    const unsigned lane = threadIdx.x % 32;
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
        unsigned halves[2];
        for (unsigned i = 0; i < 2; ++i) {
            const unsigned outer = lane / 4;
            const unsigned inner = lane % 4 * 2 + i;
            const unsigned r = transposed ? inner : outer;
            const unsigned c = transposed ? outer : inner;
            halves[i] = address_of<std::uint16_t>(rows[matrix * 8 + r])[c];
        }
        to[matrix] = halves[0] | halves[1] << 16;
    }
}

inline void load_matrices(unsigned (&to)[4], const std::uint16_t* row,
                          std::source_location where = std::source_location::current()) {
    load_matrices_by(to, row, false, where);
}

inline void load_matrices_transposed(unsigned (&to)[4], const std::uint16_t* row,
                                     std::source_location where = std::source_location::current()) {
    load_matrices_by(to, row, true, where);
}

inline void begin_copy_16(void* to, const void* from, bool zeros) {
    if (address_bits(to) % 16 != 0 || address_bits(from) % 16 != 0) {
        base::fail("cp.async: an address is no multiple of 16 bytes");
    }
    emulation::begin_copy(to, from, zeros ? 0 : 16, zeros ? 16 : 0);
}

inline void finish_copies() { emulation::finish_copies(); }

struct Operands { // of one lane
    unsigned a[4], b[2];

    static float half(unsigned pair, unsigned second) {
        return std::bit_cast<float>(second != 0 ? pair & 0xFFFF0000U : pair << 16);
    }
};

inline void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b_low, unsigned b_high,
                         std::source_location where = std::source_location::current()) {
    const Operands mine{{a[0], a[1], a[2], a[3]}, {b_low, b_high}};
    const std::uint64_t* all = emulation::exchange("mma", 0xFFFFFFFFU, address_bits(&mine), where);
    const auto of_lane = [&](unsigned lane) -> const Operands& {
        return *address_of<Operands>(all[lane]);
    };
    const unsigned lane = threadIdx.x % 32;
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = lane / 4 + i / 2 * 8;
        const unsigned column = lane % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; ++k) {
            const Operands& has_a = of_lane(row % 8 * 4 + k % 8 / 2);
            const Operands& has_b = of_lane(column * 4 + k % 8 / 2);
            sums[i] += Operands::half(has_a.a[row / 8 + k / 8 * 2], k % 2) *
                       Operands::half(has_b.b[k / 8], k % 2);
        }
    }
    emulation::exchange("mma", 0xFFFFFFFFU, 0, where); // until all have read what this lane holds
}

} // namespace foregather::kernels
