// SPDX-License-Identifier: Apache-2.0
// Columns and attributes, as they are stored.
#include <foregather/io/columns.hpp>

#include <foregather/base/error.hpp>

namespace foregather::io {
namespace {

Group open_group(const File& file, const std::string& group) {
    return Group(check(H5Gopen2(file.handle(), group.c_str(), H5P_DEFAULT), "open " + group));
}

} // namespace

std::vector<std::string> strings_of(const File& file, const std::string& path) {
    const Dataset dataset(
        check(H5Dopen2(file.handle(), path.c_str(), H5P_DEFAULT), "open " + path));
    const Type type(check(H5Dget_type(dataset.handle()), "read the type of " + path));
    const base::Shape shape = shape_of(dataset, path);
    if (H5Tget_class(type.handle()) != H5T_STRING || H5Tis_variable_str(type.handle()) > 0 ||
        shape.size() != 1) {
        base::fail(path + " is no column of strings of fixed length");
    }
    const std::size_t length = H5Tget_size(type.handle());
    std::string bytes(static_cast<std::size_t>(shape[0]) * length, '\0');
    if (shape[0] > 0) {
        read_block(dataset, type.handle(), {{0}, shape}, reinterpret_cast<std::byte*>(bytes.data()),
                   path);
    }
    std::vector<std::string> values;
    for (std::size_t at = 0; at < bytes.size(); at += length) {
        const std::string padded = bytes.substr(at, length);
        values.push_back(padded.substr(0, padded.find('\0')));
    }
    return values;
}

// The library asks for the links above it first.
bool holds(const File& file, const std::string& path) {
    for (std::size_t end = 0; end != std::string::npos;) {
        end = path.find('/', end + 1);
        const std::string above = path.substr(0, end);
        if (check(H5Lexists(file.handle(), above.c_str(), H5P_DEFAULT), "look for " + above) == 0) {
            return false;
        }
    }
    return true;
}

std::string group_text(const File& file, const std::string& group, const std::string& attribute) {
    const auto text = text_attribute(open_group(file, group).handle(), attribute, group);
    if (!text) {
        base::fail(group + " has no attribute " + attribute);
    }
    return *text;
}

double group_number(const File& file, const std::string& group, const std::string& attribute) {
    const Group opened = open_group(file, group);
    const std::string what = "read the attribute " + attribute + " of " + group;
    const Attribute found(check(H5Aopen(opened.handle(), attribute.c_str(), H5P_DEFAULT), what));
    double value = 0;
    check(H5Aread(found.handle(), H5T_NATIVE_DOUBLE, &value), what);
    return value;
}

} // namespace foregather::io
