// SPDX-License-Identifier: Apache-2.0
// Checksums that lie in a file beside what they cover, for data that HDF5 itself does not cover.
// Which datasets have one is decided by who writes the file; which must match, by who reads it.
#pragma once

#include <string>

#include <foregather/io/h5.hpp>

namespace foregather::io {

// Gives a dataset that is written the attribute sha256: SHA-256 of its values as they are stored,
// end to end. For numbers and strings of fixed length.
void seal(const File& file, const std::string& path);

// Whether a dataset has that attribute, and its values are such as it can cover.
bool is_sealed(const Dataset& dataset, const std::string& name);
// Reads a sealed dataset once, in pieces; blocks. Throws Error(refused) where its values are not
// those that were sealed; one that is not sealed is left alone. `name` is "FILE: /dataset", `maker`
// the tool that makes such files.
void refuse_if_broken(const Dataset& dataset, const std::string& name, const std::string& maker);

// Throws Error(refused) where two digests differ: found of what `name` says, told by `attribute`.
void refuse_other_digest(const std::string& name, const std::string& found,
                         const std::string& attribute, const std::string& told,
                         const std::string& maker);

} // namespace foregather::io
