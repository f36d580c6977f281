// SPDX-License-Identifier: Apache-2.0
// Records of uses written by hand, in milliseconds, for tests of what the witness makes of them.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include <foregather/schedule/witness.hpp>

namespace foregather::tests {

inline constexpr std::int64_t ms = 1'000'000; // in ns
inline constexpr std::int64_t judged_ns = 2 * ms;

// A run of `n` uses of different units at this depth, as it should be: gathers of `gather_ms` back
// to back with computes of `compute_ms`, each gather beginning `late_ms` after it could.
struct PlannedRun {
    int depth = 1;
    std::int64_t n = 10;
    std::int64_t gather_ms = 5;
    std::int64_t compute_ms = 10;
    std::int64_t late_ms = 0;

    std::vector<schedule::UseRecord> records() const {
        std::vector<schedule::UseRecord> all(static_cast<std::size_t>(n));
        std::int64_t sequence = 1;
        std::int64_t gathered = 0; // uses whose gather has been enqueued
        std::int64_t gather_end = 0;
        for (std::int64_t i = 0; i < n; ++i) {
            // The host runs ahead: all is issued at time 0, and the slots hold the gathers back.
            for (; gathered <= std::min(i + depth, n - 1); ++gathered) {
                auto& later = all[static_cast<std::size_t>(gathered)];
                const std::int64_t before = gathered - depth - 1; // the slot's last use
                later.use = gathered;
                later.unit = static_cast<base::UnitId>(gathered);
                later.gathered = true;
                later.gather_sequence = sequence++;
                later.slot_free =
                    before < 0 ? 0 : all[static_cast<std::size_t>(before)].compute_end;
                later.gather_begin = std::max(gather_end, later.slot_free) + late_ms * ms;
                later.gather_end = gather_end = later.gather_begin + gather_ms * ms;
            }
            auto& now = all[static_cast<std::size_t>(i)];
            now.compute_sequence = sequence++;
            now.compute_begin = std::max(
                now.gather_end, i == 0 ? 0 : all[static_cast<std::size_t>(i - 1)].compute_end);
            now.compute_end = now.compute_begin + compute_ms * ms;
        }
        return all;
    }
};

inline schedule::Witness witness_of(const std::vector<schedule::UseRecord>& records,
                                    std::array<int, 2> depths, bool moves = true) {
    schedule::Witness witness(depths, judged_ns, moves);
    witness.begin_segment(static_cast<std::int64_t>(records.size()));
    for (const auto& record : records) {
        witness.add(record);
    }
    return witness;
}

// Of uses that are all forward ones.
inline schedule::PrefetchFigures figures_of(const std::vector<schedule::UseRecord>& records,
                                            int depth, bool moves = true) {
    return witness_of(records, {depth, 0}, moves).figures();
}

} // namespace foregather::tests
