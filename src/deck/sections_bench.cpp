// SPDX-License-Identifier: Apache-2.0
// The part of the key table that is the job bench's alone: what is measured, and how often. The
// other keys of a bench are in sections.cpp and sections_train.cpp.
#include <foregather/deck/sections.hpp>

#include "table.hpp"

namespace foregather::deck {

namespace {

constexpr Row rows[] = {
    {"bench.job", [](Sections& s) -> Field { return &s.bench.job; }, one_of("score train"), "",
     "bench", optional, Mark::identity,
     "Whose passes are measured. score: forward passes. train: whole optimizer steps of "
     "train.accumulate passes, at learning rate 0."},
    {"bench.depths", [](Sections& s) -> Field { return &s.bench.depths; }, list_of_whole(0, 64),
     "units", "bench", optional, Mark::identity,
     "Depths of the prefetch, each measured in turn with the others, of both directions; empty: 0 "
     "and fsdp.forward_prefetch. Slots are those of the largest."},
    {"bench.transports", [](Sections& s) -> Field { return &s.bench.transports; },
     list_of("mpi shared nccl"), "", "bench", optional, Mark::identity,
     "Transports, one after another; empty: what comm.transport gives. Where nothing is gathered, "
     "compute alone is measured."},
    {"bench.tokens", [](Sections& s) -> Field { return &s.bench.tokens; },
     list_of_whole(2, 1 << 24), "tokens", "bench", optional, Mark::identity,
     "Tokens of each rank and pass, one after another; empty: batch.tokens. Every pass of every "
     "rank computes the same documents from the start of the token file, cut or repeated to fill "
     "it exactly."},
    {"bench.steps", [](Sections& s) -> Field { return &s.bench.steps; }, whole(1, 100000), "steps",
     "bench", optional, Mark::identity,
     "Passes, or steps of training, that are measured in each turn of a depth."},
    {"bench.warmup", [](Sections& s) -> Field { return &s.bench.warmup; }, whole(1, 1000), "steps",
     "bench", optional, Mark::identity, "The same before them, in each turn, not measured."},
    {"bench.pairs", [](Sections& s) -> Field { return &s.bench.pairs; }, whole(1, 10000), "rounds",
     "bench", optional, Mark::identity,
     "Rounds in which each depth has one turn, in an order that bench.seed draws anew for each "
     "round. Five or more give an interval that means something."},
    {"bench.seed", [](Sections& s) -> Field { return &s.bench.seed; }, whole(0, most), "", "bench",
     optional, Mark::identity, "Of the order of turns, and of the intervals."},
};

} // namespace

std::span<const Row> bench_rows() { return rows; }

} // namespace foregather::deck
