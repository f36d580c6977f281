// SPDX-License-Identifier: Apache-2.0
// Rows that a training run stores: which items its steps take and where they stand, and what a run
// that goes on takes over of what was before. What a step computes is decided elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/io/checkpoint_file.hpp>
#include <foregather/io/results_file.hpp>

#include "data_order.hpp"

namespace foregather::job {

// Where the items of each step stand in /train/items.
struct ItemPlan {
    std::vector<std::int64_t> first; // [steps + 1]; empty: there are too many to be stored

    std::int64_t rows() const { return first.empty() ? 0 : first.back(); }
    bool stored() const { return !first.empty(); }
};
// Of all steps, from the first epoch's begin: the same on every rank, at any number of them. With
// more than most_rows rows nothing is stored.
inline constexpr std::int64_t most_item_rows = std::int64_t{1} << 24;
ItemPlan plan_items(DataOrder& order, std::int64_t steps, std::int64_t most_rows = most_item_rows);

// What one step took; `step` counts from 1. They stand at ItemPlan::first[step - 1].
io::ItemRows item_rows(const Items& items, const Batch& batch, std::int64_t step);

// For the rank that writes, at the start of a run that goes on: the rows of steps, evaluations and
// items up to the checkpoint's. Returns "", or, when the items of those steps cannot be told
// because the order was another one, a sentence to be told; their rows then stay -1.
std::string write_before(io::ResultsFile& file, const io::TrainingState& state, DataOrder& order,
                         const Items& items, const ItemPlan& plan);

// Starts of the run that a checkpoint is of, from what it left at PATH.part or else PATH: a results
// file of the same run has the same steps, to the bit. None if there is no such file. For one rank.
std::vector<io::RunStart> earlier_starts(const io::Output& output, const io::LossHistory& history);

} // namespace foregather::job
