// SPDX-License-Identifier: Apache-2.0
// Tensor cores and what feeds them, one instruction to a function: what each lane of the warp gives
// and gets is the PTX ISA's word ("ldmatrix", "mma.m16n8k16 with floating point type", "cp.async").
// Tests build the same kernels with another header of this name.
#pragma once

#include <cstdint>

namespace foregather::kernels {

// Begins a copy of 16 bytes into shared memory, or of zeros; both addresses are multiples of 16.
__device__ inline void begin_copy_16(void* to, const void* from, bool zeros) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from),
                   "r"(zeros ? 0 : 16)
                 : "memory");
}

// Waits until the copies that this thread began are there, for this thread.
__device__ inline void finish_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Of the rest all lanes of a warp call together. Four matrices of 8 x 8 bf16 in shared memory. Lane
// l gives the address of row l % 8 of matrix l / 8, a multiple of 16 bytes; it gets of matrix i in
// to[i] row l / 4, columns l % 4 * 2 and the next, the first in the low half.
__device__ inline void load_matrices(unsigned (&to)[4], const std::uint16_t* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}

// The same of the matrices transposed.
__device__ inline void load_matrices_transposed(unsigned (&to)[4], const std::uint16_t* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}

// sums [16, 8] += a [16, 16] b [16, 8], a and b in bf16, sums in fp32. With g = lane / 4 and
// c = lane % 4 * 2, a lane holds
//   of a     row g, columns c, c + 1; row g + 8, the same; row g, columns c + 8, c + 9; row g + 8;
//   of b     rows c, c + 1 of column g; rows c + 8, c + 9;
//   of sums  row g, columns c, c + 1; row g + 8, the same.
__device__ inline void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b_low,
                                    unsigned b_high) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}

} // namespace foregather::kernels
