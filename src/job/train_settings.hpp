// SPDX-License-Identifier: Apache-2.0
// What a checkpoint stores of the run that wrote it, and whether another start goes on with that
// run. The state itself, and when it is stored, is decided elsewhere.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <foregather/io/checkpoint_file.hpp>

#include "identity.hpp"
#include "train_inputs.hpp"

namespace foregather::job {

// Names and values, as TrainingState::settings holds them; more may be added by the job.
using Settings = std::vector<std::pair<std::string, std::string>>;

// Keys that are not free, by what they come to: files by content, and none that another key makes
// inert. For the rank that knows TrainInputs::tokens_sha256.
Settings train_settings(const deck::Deck& deck, const TrainInputs& inputs, const Machine& machine);

// Everything in which a start differs from the run that it is to go on with and may not, a line
// each, "" if there is nothing: what decides the numbers of the steps to come.
std::string changed_settings(const Settings& stored, const Settings& now);
// What differs and may: kinds of device and libraries, which change rounding alone, speed, what is
// recorded. A line each, to be told.
std::vector<std::string> told_changes(const Settings& stored, const Settings& now);

// Throws Error(refused), with all of them, for a checkpoint of a run that this start does not go on
// with: other tensors, or settings that may not differ. Returns what may, to be told.
std::vector<std::string> compare_with(const io::Checkpoint& checkpoint, const model::Chain& chain,
                                      const Settings& now);

} // namespace foregather::job
