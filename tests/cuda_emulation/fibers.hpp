// SPDX-License-Identifier: Apache-2.0
// CUDA's blocks and threads on one CPU thread: blocks one after another, a block's threads as
// fibers that give way only at barriers and warp operations. It knows no kernel and no stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <type_traits>

#include <vector_types.h>

// CUDA's own variables, those of the running thread.
extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;

namespace foregather::emulation {

inline constexpr int warp_lanes = 32;

// In which order threads run where the program leaves it open. A kernel that lacks a barrier gives
// another result in one of them.
enum class Order { ascending, descending, shuffled };
// FOREGATHER_EMULATION_ORDER: 0, 1 or 2 of the list above; ascending where it is not set.
Order order_of_environment();

struct Grid {
    std::string name; // of the kernel, for messages
    dim3 blocks, threads;
    std::size_t shared_bytes = 0; // dynamic
};

// Runs thread() once as each thread of each block; blocks. Dynamic and block-wide memory begin each
// block filled with bytes 0xFF, which are NaN. Throws Error(failed), naming kernel and block, for
// barriers that not all threads reach, warp operations that not all lanes join or that name too
// few, and what thread() throws.
void run_grid(const Grid& grid, Order order, const std::function<void()>& thread);

// ---- for kernels: only inside thread() ----------------------------------------------------------

using Where = std::source_location;

void sync_block(Where where);

// Waits for the warp's other lanes in the same `operation` (a literal) at the same place, and
// returns what all of them brought. Valid until this lane's next but one call.
const std::uint64_t* exchange(const char* operation, unsigned mask, std::uint64_t value,
                              Where where);

// A copy that may happen at any time until the same thread finishes its copies; `zeros` bytes
// behind it are cleared.
void begin_copy(void* to, const void* from, std::size_t bytes, std::size_t zeros);
void finish_copies();

std::byte* dynamic_memory();
// The block's memory for `key`, the same for all of its threads.
std::byte* block_memory(const void* key, std::size_t bytes);

} // namespace foregather::emulation
