// SPDX-License-Identifier: Apache-2.0
// Fixed sizes of the score job, each in one place.
#pragma once

#include <cstdint>

namespace foregather::job {

inline constexpr std::int64_t staging_bytes = 8 << 20;       // of a load
inline constexpr std::int64_t window_spare_bytes = 16 << 20; // left free beside a shared window
// ids, positions, offsets, rows, targets, log-probability, greedy on the host side and on the
// device side, and which token is scored.
inline constexpr std::int64_t bytes_per_pack_token = 2 * (5 * 4 + 4 + 1) + 8;
inline constexpr double progress_every_s = 5; // a line on stdout

} // namespace foregather::job
