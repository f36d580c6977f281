// SPDX-License-Identifier: Apache-2.0
// Stacks of fibers, and the calls by which an address sanitizer learns that the stack changes; in
// a program built without one they do nothing.
#pragma once

#include <cstddef>

namespace foregather::emulation {

struct Stack {
    std::byte* bottom = nullptr;
    std::size_t bytes = 0;
};

// The i-th stack of the calling thread, the same each time; an overrun faults.
Stack stack_of(std::size_t i);
// The stack holds nothing that anyone will return to.
void forget(const Stack& stack);

// Before a switch to `to`: keeps the sanitizer's own frames in *leaving; null if the stack that is
// left is done.
void begin_switch(void** leaving, const Stack& to);
// After a switch: `arrived` is what begin_switch() kept there, null on a new stack. Tells in *from
// which stack was left.
void end_switch(void* arrived, Stack* from);

} // namespace foregather::emulation
