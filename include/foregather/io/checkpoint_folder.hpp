// SPDX-License-Identifier: Apache-2.0
// A folder of checkpoints: their names, the newest that is complete, what is removed. What a
// checkpoint holds is decided by checkpoint_file.hpp. Nothing here is collective.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <foregather/io/descriptor.hpp>

namespace foregather::io {

// "step-00000010.h5"; steps of nine digits and more have longer names.
std::string checkpoint_name(std::int64_t step);
// The step that such a name tells; nothing for other names.
std::optional<std::int64_t> step_of_name(const std::string& name);

// Keeps other runs from writing into the folder as long as the result lives, or its process; who
// reads is not kept. A folder that is not there cannot be held, and on a file system without locks
// nobody is kept: then two runs of one folder are the user's to avoid. Throws Error(refused) when
// another run holds it.
[[nodiscard]] Descriptor hold_checkpoints(const std::string& directory);

// Makes the folder unless it exists (not those above it), and tries to create a file in it. Throws
// Error(refused) when either cannot be done, or something that is no file has the name of a
// checkpoint.
void prepare_checkpoints(const std::string& directory);

struct SkippedCheckpoint {
    std::string path, why;
};
struct FoundCheckpoint {
    std::string path; // "": there is none
    std::int64_t step = 0;
    std::vector<SkippedCheckpoint> skipped; // newer by name than the one found, newest first
};
// The checkpoint of the highest step that is complete and can be read. A folder that is not there
// has none. Opens files read-only. Throws Error(refused) when the folder cannot be listed.
FoundCheckpoint find_checkpoint(const std::string& directory);

// Its checkpoints by name alone.
std::int64_t count_checkpoints(const std::string& directory);
// The path of the highest step before `step` by name alone, "" if there is none.
std::string checkpoint_before(const std::string& directory, std::int64_t step);

// Removes checkpoints of steps before `step` but the newest keep - 1 (keep 0: none is removed). One
// of a later step is never touched. Returns what could not be removed, in words.
std::string remove_old_checkpoints(const std::string& directory, std::int64_t step,
                                   std::int64_t keep);

// Removes temporary files, of any step, that no run holds open for writing: saves that were
// interrupted. On a file system without locks only that of `step`, which is about to be written.
// What cannot be removed stays.
void remove_interrupted(const std::string& directory, std::int64_t step);

} // namespace foregather::io
