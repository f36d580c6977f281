// SPDX-License-Identifier: Apache-2.0
// Tables and texts in a file that we write: plain 1-D columns with units and labels, which every
// HDF5 tool reads without help. Which tables a job writes is the job's business.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <foregather/io/h5_data.hpp>

namespace foregather::io {

// One column; strings are stored in fixed length, that of the longest.
struct Column {
    std::string name;
    std::string units; // "nat", "token", "s", "ns", "byte", "1"; "" for strings
    std::string long_name;
    std::variant<std::vector<float>, std::vector<double>, std::vector<std::int64_t>,
                 std::vector<std::uint8_t>, std::vector<std::string>>
        values;
};

// A group that holds columns of equal length.
struct Table {
    std::string path; // e.g. "/timing/spans"
    std::vector<Column> columns;
    std::vector<std::pair<std::string, std::variant<double, std::int64_t, std::string>>> attributes;
    std::string row = "row"; // dimension label of the columns
};

// A text of any length: a scalar dataset, byte for byte.
struct Text {
    std::string path; // e.g. "/provenance/deck_text"
    std::string text;
};

// A dataset to be laid out: its storage is allocated, and filled, when it is created.
struct Layout {
    std::string path;
    hid_t type; // stored type
    base::Shape shape;
    std::string units, long_name;
    std::vector<std::string> labels; // one per dimension
    std::vector<std::byte> fill;     // one element of `type`; empty: zeros
    bool filled = true;              // false: only allocated; whoever reads it writes it before
};

// An object that is written but stands nowhere yet: nothing in its file refers to it, and it is
// gone when it is closed before it is put into its place.
struct Unplaced {
    std::string path; // its place
    Object object;
    std::int64_t bytes = 0; // written
};
// All of these are for a file that this process alone has open for writing. Each throws
// Error(failed) naming the path, also when columns differ in length. No write of a column will be
// larger than piece_bytes.
Unplaced make_table(const File& file, const Table& table,
                    std::int64_t piece_bytes = default_piece_bytes);
Unplaced make_text(const File& file, const Text& text);
// Puts an object into its place, in a group that exists and has none of that name.
void place(const File& file, const Unplaced& made);
// Takes what has a place away from it; nothing if there is none.
void displace(const File& file, const std::string& path);

// Creates a group with room in its header for links to come: while they are no more than
// `roomy_links`, with names of 24 bytes on average, a link changes the header in its place and
// nothing else.
inline constexpr unsigned roomy_links = 32;
void create_roomy_group(const File& file, const std::string& path);

// Make and place at once, with the groups on the way. The first two return bytes written.
std::int64_t write_table(const File& file, const Table& table,
                         std::int64_t piece_bytes = default_piece_bytes);
std::int64_t write_text(const File& file, const Text& text);
Dataset create_dataset(const File& file, const Layout& layout);

// An upper bound of what a file grows by when these are written to it.
base::Bytes room_for(const std::vector<Table>& tables, const std::vector<Text>& texts);

} // namespace foregather::io
