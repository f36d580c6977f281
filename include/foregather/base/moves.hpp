// SPDX-License-Identifier: Apache-2.0
// Signs that this process gets on with its work, for whoever must tell a long piece of work from
// one that will never end. It judges nobody: mesh/watch.hpp does.
#pragma once

#include <cstdint>

namespace foregather::base {

// Says that some work got on: a task of a stream ended, bytes of a file moved, an exchange is over.
// Cheap; from any thread.
void moved() noexcept;

// How often that was said.
std::int64_t moves() noexcept;

// While one lives, the process is in a call that shows no signs and may last: one with a deadline
// of its own, or one that a file system takes its time for (bringing to disk, closing).
class MayLast {
public:
    MayLast() noexcept;
    ~MayLast();
    MayLast(const MayLast&) = delete;
    MayLast& operator=(const MayLast&) = delete;

    static bool any() noexcept; // in this process
};

} // namespace foregather::base
