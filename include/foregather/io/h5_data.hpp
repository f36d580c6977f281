// SPDX-License-Identifier: Apache-2.0
// Values in and out of HDF5: types, strings, attributes, hyperslabs in pieces of bounded size.
// Numbers are moved as stored, or converted by HDF5 if asked; weights go through convert.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/base/view.hpp>
#include <foregather/io/h5.hpp>

namespace foregather::io {

// The largest transfer handed to HDF5 in one call: far below 2 GiB, where MPI-IO counts overflow.
inline constexpr std::int64_t default_piece_bytes = std::int64_t{512} << 20;

// The element types of weights as HDF5 stores them, little-endian. bfloat16 is a 16-bit float type
// with its bit fields, so that h5dump and h5py print values.
Type file_type(base::DType type);
// The element type of a stored one; nothing when it is none of these, as all big-endian ones.
std::optional<base::DType> dtype_of(hid_t type);
// A type in words: "float64", "uint16 (big-endian)", "variable-length string".
std::string type_in_words(hid_t type);

// Fixed-length, null-padded UTF-8 of `bytes` bytes (at least one).
Type string_type(std::size_t bytes);

// The native HDF5 type of a C++ number.
template <class T>
hid_t native_type() {
    if constexpr (std::is_same_v<T, float>) {
        return H5T_NATIVE_FLOAT;
    } else if constexpr (std::is_same_v<T, double>) {
        return H5T_NATIVE_DOUBLE;
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
        return H5T_NATIVE_INT64;
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
        return H5T_NATIVE_UINT64;
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
        return H5T_NATIVE_INT32;
    } else {
        static_assert(std::is_same_v<T, std::uint8_t>, "a number that HDF5 stores for us");
        return H5T_NATIVE_UINT8;
    }
}

base::Shape shape_of(const Dataset& dataset, const std::string& name);

// A part of an array: `start` and `count` per dimension.
struct Block {
    base::Shape start, count;
};
// Cuts a block of an array into pieces of at most `limit_bytes` (at least one element), in
// row-major order, and hands over each with its first element's position in the block.
void for_each_piece(const Block& block, std::int64_t element_bytes, std::int64_t limit_bytes,
                    const std::function<void(const Block&, base::Elements position)>& use);

// Elements [flat.begin, flat.end) of an array in row-major order, as the fewest blocks, in order:
// in each dimension the end of a row, whole rows, the begin of a row. `position` counts from
// flat.begin. The array has at least one dimension.
void for_each_block(const base::Shape& shape, base::Range flat,
                    const std::function<void(const Block&, base::Elements position)>& use);

// Moves one block between a dataset and memory that holds it densely, in one call of HDF5,
// independent of other ranks. `memory_type` is the type in memory; equal to the stored type,
// nothing is converted.
void read_block(const Dataset& dataset, hid_t memory_type, const Block& block, std::byte* out,
                const std::string& name);
void write_block(const Dataset& dataset, hid_t memory_type, const Block& block,
                 const std::byte* values, const std::string& name);

// Reads elements [first, first + out.size()) of a 1-D dataset in pieces; `name` is for messages.
template <class T>
void read_range(const Dataset& dataset, base::Elements first, base::View<T> out,
                const std::string& name) {
    for_each_piece({{first}, {std::ssize(out)}}, sizeof(T), default_piece_bytes,
                   [&](const Block& piece, base::Elements position) {
                       read_block(dataset, native_type<T>(), piece,
                                  reinterpret_cast<std::byte*>(out.data() + position), name);
                   });
}

// Writes elements [first, first + values.size()) of a 1-D dataset in pieces of at most that many
// bytes.
template <class T>
void write_range(const Dataset& dataset, base::Elements first, base::View<const T> values,
                 const std::string& name, std::int64_t piece_bytes = default_piece_bytes) {
    for_each_piece({{first}, {std::ssize(values)}}, sizeof(T), piece_bytes,
                   [&](const Block& piece, base::Elements position) {
                       write_block(dataset, native_type<T>(), piece,
                                   reinterpret_cast<const std::byte*>(values.data() + position),
                                   name);
                   });
}

// The one string that a dataset or attribute holds, fixed or variable in length. Throws
// Error(refused) when it holds something else; `name` is for messages.
std::string read_text(const Dataset& dataset, const std::string& name);
// Attributes of an object; nothing when there is none of that name.
std::optional<std::string> text_attribute(hid_t object, const std::string& attribute,
                                          const std::string& name);
std::optional<std::int64_t> integer_attribute(hid_t object, const std::string& attribute,
                                              const std::string& name);

// Writes a scalar attribute. Strings of 60000 bytes and more are refused: HDF5 stops at 64 KiB, and
// long texts are datasets.
inline constexpr std::size_t longest_attribute = 60000;
void write_attribute(hid_t object, const std::string& attribute, const std::string& value);
void write_attribute(hid_t object, const std::string& attribute, std::int64_t value);
void write_attribute(hid_t object, const std::string& attribute, double value);

// Gives a scalar attribute that exists another value, where it stands: no object moves or grows.
void overwrite_attribute(hid_t object, const std::string& attribute, std::int64_t value);
void overwrite_attribute(hid_t object, const std::string& attribute, double value);

} // namespace foregather::io
