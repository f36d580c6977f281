// SPDX-License-Identifier: Apache-2.0
// The state of training as tables and texts of a checkpoint, and back. What a state must hold is
// decided by checkpoint_file.hpp.
#pragma once

#include <string>

#include <foregather/io/checkpoint_file.hpp>
#include <foregather/io/table.hpp>

namespace foregather::io {

// /train: the loss history as columns, the counts as attributes; and /evaluation.
std::vector<Table> tables_of(const TrainingState& state);
// /train/settings: a line "key = value" each.
Text settings_of(const TrainingState& state);

// Throws Error(refused) naming what is missing or not as it must be.
TrainingState read_state(const File& file, const std::string& path, std::int64_t file_bytes);

} // namespace foregather::io
