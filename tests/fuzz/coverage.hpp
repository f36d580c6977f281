// SPDX-License-Identifier: Apache-2.0
// Which bytes of an HDF5 file are covered by what: checksums of the format, a digest of ours, or
// nothing. It reads the file as it was before any change; what a change must lead to is for tests.
#pragma once

#include <string>
#include <vector>

#include "mutate.hpp"

namespace foregather::fuzz {

// Ordered: of a change that touches several, the least that it touches is its class.
enum class Cover {
    metadata, // blocks of the format, each with a checksum of its own
    digest,   // datasets whose digest is stored and verified
    payload,  // datasets that nothing covers
    gap,      // in no block and in no dataset: HDF5 never reads it
    beyond,   // behind the end of the file as it was
    none,     // nothing was touched
};
inline constexpr int covers = static_cast<int>(Cover::none);
const char* name_of(Cover cover);

class Coverage {
public:
    // `digested`: paths of the datasets that a digest covers.
    Coverage(const std::string& path, const std::vector<std::string>& digested);

    const std::string& bytes() const { return bytes_; }
    // Where to aim: half at metadata, a quarter at what a digest covers, a quarter anywhere.
    const std::vector<Extent>& aims() const { return aims_; }
    std::size_t bytes_of(Cover cover) const;

    // What a changed file has other bytes in. A shorter one lacks `metadata`: where the file ends
    // is told by its first block.
    Cover touched(const std::string& changed) const;

private:
    void find_datasets(const std::string& path, const std::vector<std::string>& digested);
    void find_blocks();
    void set(std::size_t begin, std::size_t end, Cover cover);

    std::string bytes_;
    std::vector<Cover> of_byte_;
    std::vector<Extent> aims_;
};

} // namespace foregather::fuzz
