// SPDX-License-Identifier: Apache-2.0
// Fixed sizes of the score job, each in one place.
#pragma once

#include <cstdint>

namespace foregather::job {

inline constexpr std::int64_t staging_bytes = 8 << 20;       // of a load
inline constexpr std::int64_t window_spare_bytes = 16 << 20; // left free beside a shared window
// Of one pass: ids, positions, offsets, rows, targets, log-probability, greedy on the device; on
// the host the same, the first five as they are made too, and which token is scored.
inline constexpr std::int64_t bytes_per_pack_token = 5 * 4 + 4 + 1;
inline constexpr std::int64_t host_bytes_per_pack_token = 2 * 5 * 4 + 4 + 1 + 8;
inline constexpr double progress_every_s = 5; // a line on stdout

} // namespace foregather::job
