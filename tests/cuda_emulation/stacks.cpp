// SPDX-License-Identifier: Apache-2.0
// Where the stacks lie: mapped once for each thread, with a page below each that nobody may touch.
#include "stacks.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <sys/mman.h>

#include <foregather/base/error.hpp>

// Weak: there only in programs that are built with an address sanitizer.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** leaving, const void* bottom,
                                                  std::size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* arrived, const void** bottom,
                                                   std::size_t* bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(void const volatile* begin, std::size_t bytes);
}

namespace foregather::emulation {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t stack_bytes = 256 << 10; // touched only as far as they are used

struct Unmap {
    void operator()(std::byte* memory) const { munmap(memory, page + stack_bytes); }
};

} // namespace

Stack stack_of(std::size_t i) {
    thread_local std::vector<std::unique_ptr<std::byte, Unmap>> mapped;
    while (mapped.size() <= i) {
        void* memory = mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
            base::fail(std::string("cannot map the stack of a fiber: ") + std::strerror(errno));
        }
        mapped.emplace_back(static_cast<std::byte*>(memory));
    }
    return {mapped[i].get() + page, stack_bytes};
}

void forget(const Stack& stack) {
    if (__asan_unpoison_memory_region != nullptr) {
        __asan_unpoison_memory_region(stack.bottom, stack.bytes);
    }
}

void begin_switch(void** leaving, const Stack& to) {
    if (__sanitizer_start_switch_fiber != nullptr) {
        __sanitizer_start_switch_fiber(leaving, to.bottom, to.bytes);
    }
}

void end_switch(void* arrived, Stack* from) {
    if (__sanitizer_finish_switch_fiber != nullptr) {
        const void* bottom = nullptr;
        std::size_t bytes = 0;
        __sanitizer_finish_switch_fiber(arrived, &bottom, &bytes);
        if (from != nullptr) {
            *from = {static_cast<std::byte*>(const_cast<void*>(bottom)), bytes};
        }
    }
}

} // namespace foregather::emulation
