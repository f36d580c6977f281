// SPDX-License-Identifier: Apache-2.0
// The names of a file on its way, and the step from one to the other. What the file holds is
// decided by results_file.cpp and checkpoint_file.cpp.
#pragma once

#include <string>

#include <foregather/io/results_file.hpp>

namespace foregather::io {

// Creates PATH.part and marks it as being written for as long as the result lives:
// refuse_unusable() of another run then refuses. Throws Error(refused) when it exists, or, if it is
// to be `there`, when it does not. For one rank.
Descriptor claim(const std::string& part, bool there = false);

// Takes room for so many more bytes behind the end of PATH.part, or throws Error(failed) and leaves
// it as it was. HDF5 gives back what it does not use; without room it would leave a file that does
// not open.
void reserve(const std::string& part, base::Bytes more);

// As ::unlink and std::rename. Where a large file goes away, its blocks are freed, which may last.
int remove_file(const std::string& path) noexcept;
int rename_file(const std::string& from, const std::string& to) noexcept;

// "." for a name alone.
std::string directory_of(const std::string& path);
// Waits until a file or directory, opened with these flags, is on disk. Throws Error(failed).
void sync_to_disk(const std::string& path, int flags);

// Brings PATH.part to disk, renames it to PATH, and brings the directory to disk. Throws
// Error(failed), with PATH.part and PATH as they were, when any of it fails. For one rank; blocks.
void publish(const Output& output);

} // namespace foregather::io
