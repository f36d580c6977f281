// SPDX-License-Identifier: Apache-2.0
// What input files may not contain: links out of the file, filters, external and virtual storage,
// data never written. Each check returns the fault in words, "" when there is none.
#pragma once

#include <cstdint>
#include <string>

#include <foregather/io/h5.hpp>

namespace foregather::io {

// Reads of an input before any work, by `work`: whatever fails there is a refusal that names the
// file.
template <class Work>
void reading(const std::string& path, const Work& work) {
    try {
        work();
    } catch (const base::Error& error) {
        const std::string told = error.what();
        const bool named = told.find(path) != std::string::npos;
        throw base::Error(base::Status::refused, named ? told : path + ": " + told, error.where());
    }
}

// A link `name` in `group` (a file or group handle) that is absent or not a hard link.
std::string link_problem(hid_t group, const std::string& name);

enum class StorageRule { any_plain, contiguous };

// Storage that is filtered, external, virtual, never written, or beyond the end of the file.
std::string storage_problem(const Dataset& dataset, StorageRule rule, std::int64_t file_bytes);

// Opens the dataset /name of an input file. Throws Error(refused), naming file and dataset, when it
// is not there, not a dataset, or has one of the faults above.
Dataset open_input_dataset(const File& file, const std::string& path, const std::string& name,
                           std::int64_t file_bytes);

} // namespace foregather::io
