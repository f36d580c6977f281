// SPDX-License-Identifier: Apache-2.0
// Values read as they are stored, digested, compared. What is covered is decided by the callers.
#include "checksums.hpp"

#include <algorithm>
#include <vector>

#include <foregather/io/digest.hpp>
#include <foregather/io/h5_data.hpp>

namespace foregather::io {

namespace {

constexpr const char* seal_name = "sha256";
constexpr std::int64_t at_once_bytes = 1 << 20;

Type type_of(const Dataset& dataset, const std::string& name) {
    return Type(
        check(H5Dget_type(dataset.handle()), "read the type of " + name, base::Status::refused));
}

std::string digest_of(const Dataset& dataset, const std::string& name) {
    const Type type = type_of(dataset, name);
    const auto bytes = static_cast<std::int64_t>(H5Tget_size(type.handle()));
    const base::Shape shape = shape_of(dataset, name);
    Sha256 digest;
    std::vector<std::byte> values;
    if (shape.empty()) {
        values.resize(static_cast<std::size_t>(bytes));
        check(
            H5Dread(dataset.handle(), type.handle(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
            "read " + name, base::Status::refused);
        digest.add(values.data(), values.size());
        return digest.hexadecimal();
    }
    for_each_piece({base::Shape(shape.size()), shape}, bytes, at_once_bytes,
                   [&](const Block& piece, base::Elements) {
                       values.resize(
                           static_cast<std::size_t>(base::elements_of(piece.count) * bytes));
                       read_block(dataset, type.handle(), piece, values.data(), name);
                       digest.add(values.data(), values.size());
                   });
    return digest.hexadecimal();
}

} // namespace

void seal(const File& file, const std::string& path) {
    const Dataset dataset(
        check(H5Dopen2(file.handle(), path.c_str(), H5P_DEFAULT), "open " + path));
    write_attribute(dataset.handle(), seal_name, digest_of(dataset, path));
}

bool is_sealed(const Dataset& dataset, const std::string& name) {
    const Type type = type_of(dataset, name);
    const H5T_class_t kind = H5Tget_class(type.handle());
    const bool plain = kind == H5T_INTEGER || kind == H5T_FLOAT ||
                       (kind == H5T_STRING && H5Tis_variable_str(type.handle()) == 0);
    return plain && check(H5Aexists(dataset.handle(), seal_name),
                          "look for the checksum of " + name, base::Status::refused) > 0;
}

void refuse_if_broken(const Dataset& dataset, const std::string& name, const std::string& maker) {
    if (is_sealed(dataset, name)) {
        refuse_other_digest(name, digest_of(dataset, name), seal_name,
                            text_attribute(dataset.handle(), seal_name, name).value_or(""), maker);
    }
}

void refuse_other_digest(const std::string& name, const std::string& found,
                         const std::string& attribute, const std::string& told,
                         const std::string& maker) {
    constexpr std::size_t enough = 12; // digits to tell two digests apart by eye
    if (found != told) {
        base::refuse(name + " is not what was written: its SHA-256 is " + found.substr(0, enough) +
                     "..., but attribute " + attribute + " says " + told.substr(0, enough) +
                     "...; the file is damaged or was edited: copy it again, or make it anew" +
                     (maker.empty() ? "" : " with " + maker));
    }
}

} // namespace foregather::io
