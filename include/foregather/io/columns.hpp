// SPDX-License-Identifier: Apache-2.0
// Reads columns of tables back from files that were written by table.hpp. Which tables there are is
// the reader's business.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/io/h5_data.hpp>

namespace foregather::io {

// A column of strings of fixed length. Throws Error(failed) where it is none, or not there.
std::vector<std::string> strings_of(const File& file, const std::string& path);

// A column of numbers, converted to T where it holds others. Throws Error(failed) likewise.
template <class T>
std::vector<T> numbers_of(const File& file, const std::string& path) {
    const Dataset dataset(
        check(H5Dopen2(file.handle(), path.c_str(), H5P_DEFAULT), "open " + path));
    std::vector<T> values(static_cast<std::size_t>(base::elements_of(shape_of(dataset, path))));
    read_range(dataset, 0, base::View<T>(values), path);
    return values;
}

// Whether there is an object at this path, "/bench/configurations".
bool holds(const File& file, const std::string& path);
// Attributes of a group, which must be there. Throw Error(failed).
std::string group_text(const File& file, const std::string& group, const std::string& attribute);
double group_number(const File& file, const std::string& group, const std::string& attribute);

} // namespace foregather::io
