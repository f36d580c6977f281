// SPDX-License-Identifier: Apache-2.0
// Two counters of the process.
#include <foregather/base/moves.hpp>

#include <atomic>

namespace foregather::base {
namespace {

std::atomic<std::int64_t> said = 0;
std::atomic<std::int64_t> lasting = 0;

} // namespace

void moved() noexcept { said.fetch_add(1, std::memory_order_relaxed); }

std::int64_t moves() noexcept { return said.load(std::memory_order_relaxed); }

MayLast::MayLast() noexcept { lasting.fetch_add(1, std::memory_order_relaxed); }

MayLast::~MayLast() {
    moved();
    lasting.fetch_sub(1, std::memory_order_relaxed);
}

bool MayLast::any() noexcept { return lasting.load(std::memory_order_relaxed) > 0; }

} // namespace foregather::base
