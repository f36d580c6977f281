// SPDX-License-Identifier: Apache-2.0
// Changes of bytes and of lines at random, the same for the same generator. What the changed text
// must do is decided by the tests.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace foregather::fuzz {

using Random = std::mt19937;

// A number of [0, end).
std::size_t below(Random& random, std::size_t end);

// Half-open range of bytes.
struct Extent {
    std::size_t begin = 0, end = 0;
};

// A file with one change, seldom two or three, of which most begin within `aims` (not empty): a bit
// flipped, a byte or a number written over, bytes of elsewhere in the file written over, a piece
// cut out, inserted or appended, the end cut off.
std::string changed_bytes(const std::string& original, const std::vector<Extent>& aims,
                          Random& random);

// A text with one change, seldom two or three: those of bytes, and lines doubled, left out,
// exchanged, taken from `others`, and values replaced by awkward ones.
std::string changed_lines(const std::string& original, const std::vector<std::string>& others,
                          Random& random);

} // namespace foregather::fuzz
