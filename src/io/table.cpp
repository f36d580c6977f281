// SPDX-License-Identifier: Apache-2.0
// Creates groups, datasets, labels and attributes in a file that one process has open for writing.
// Which tables a job writes is the job's business.
#include <foregather/io/table.hpp>

#include <hdf5_hl.h>

#include <algorithm>
#include <cstring>

#include <foregather/base/moves.hpp>

namespace foregather::io {

namespace {

void link(hid_t object, hid_t group, const std::string& name, const std::string& path) {
    check(H5Olink(object, group, name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
          "put " + path + " into its place");
}

// Creates the groups above a path that do not exist yet. HDF5 can do so by itself, but would stamp
// them with the time.
void create_groups(const File& file, const std::string& path) {
    const Plist creation = timeless(H5P_GROUP_CREATE);
    for (std::size_t end = path.find('/', 1); end <= path.size(); end = path.find('/', end + 1)) {
        const std::string group = path.substr(0, end);
        if (check(H5Lexists(file.handle(), group.c_str(), H5P_DEFAULT), "look for " + group) == 0) {
            const Group created(check(H5Gcreate2(file.handle(), group.c_str(), H5P_DEFAULT,
                                                 creation.handle(), H5P_DEFAULT),
                                      "create group " + group));
        }
    }
}

Plist storage_properties(const Layout& layout) {
    Plist creation = timeless(H5P_DATASET_CREATE);
    const hid_t handle = creation.handle();
    const std::string what = " of " + layout.path;
    check(H5Pset_layout(handle, H5D_CONTIGUOUS), "choose the layout" + what);
    // Space and values exist from the start: ranks then write raw data, and no metadata change.
    check(H5Pset_alloc_time(handle, H5D_ALLOC_TIME_EARLY), "choose the allocation" + what);
    check(H5Pset_fill_time(handle, layout.filled ? H5D_FILL_TIME_ALLOC : H5D_FILL_TIME_NEVER),
          "choose the filling" + what);
    if (!layout.fill.empty()) {
        check(H5Pset_fill_value(handle, layout.type, layout.fill.data()), "set the filling" + what);
    }
    return creation;
}

Dataset unplaced_dataset(const File& file, const Layout& layout) {
    const std::vector<hsize_t> extents(layout.shape.begin(), layout.shape.end());
    const Space space(check(extents.empty() ? H5Screate(H5S_SCALAR)
                                            : H5Screate_simple(static_cast<int>(extents.size()),
                                                               extents.data(), nullptr),
                            "describe " + layout.path));
    const Plist creation = storage_properties(layout);
    const base::MayLast may_last; // filling writes all of it
    Dataset dataset(check(
        H5Dcreate_anon(file.handle(), layout.type, space.handle(), creation.handle(), H5P_DEFAULT),
        "create dataset " + layout.path));
    if (!layout.units.empty()) {
        write_attribute(dataset.handle(), "units", layout.units);
    }
    if (!layout.long_name.empty()) {
        write_attribute(dataset.handle(), "long_name", layout.long_name);
    }
    for (std::size_t i = 0; i < layout.labels.size(); ++i) {
        check(H5DSset_label(dataset.handle(), static_cast<unsigned>(i), layout.labels[i].c_str()),
              "label a dimension of " + layout.path);
    }
    return dataset;
}

// The bytes of a column as they are stored, and their type.
struct Stored {
    Type type;
    std::vector<std::byte> bytes;
    std::int64_t rows = 0;
};

// The length in which strings are stored.
std::size_t longest_of(const std::vector<std::string>& values) {
    std::size_t longest = 1;
    for (const std::string& value : values) {
        longest = std::max(longest, value.size());
    }
    return longest;
}

Stored stored(const std::vector<std::string>& values) {
    const std::size_t longest = longest_of(values);
    Stored result{string_type(longest), std::vector<std::byte>(values.size() * longest),
                  std::ssize(values)};
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::memcpy(result.bytes.data() + i * longest, values[i].data(), values[i].size());
    }
    return result;
}

template <class T>
Stored stored(const std::vector<T>& values) {
    Stored result{Type(check(H5Tcopy(native_type<T>()), "copy a type")),
                  std::vector<std::byte>(values.size() * sizeof(T)), std::ssize(values)};
    if (!values.empty()) {
        std::memcpy(result.bytes.data(), values.data(), result.bytes.size());
    }
    return result;
}

std::int64_t write_column(const File& file, const Group& group, const Table& table,
                          const Column& column, std::int64_t rows, std::int64_t piece_bytes) {
    const std::string path = table.path + "/" + column.name;
    const Stored values = std::visit([](const auto& any) { return stored(any); }, column.values);
    if (values.rows != rows) {
        base::fail("column " + path + " has " + std::to_string(values.rows) +
                   " rows, the first column of its table " + std::to_string(rows));
    }
    const Dataset dataset = unplaced_dataset(
        file,
        {path, values.type.handle(), {rows}, column.units, column.long_name, {table.row}, {}});
    const auto bytes = static_cast<std::int64_t>(H5Tget_size(values.type.handle()));
    for_each_piece({{0}, {rows}}, bytes, piece_bytes,
                   [&](const Block& piece, base::Elements position) {
                       write_block(dataset, values.type.handle(), piece,
                                   values.bytes.data() + position * bytes, path);
                   });
    link(dataset.handle(), group.handle(), column.name, path);
    return std::ssize(values.bytes);
}

// Holds an object beyond the handle that it was made with.
Unplaced unplaced(const std::string& path, hid_t handle, std::int64_t bytes) {
    check(H5Iinc_ref(handle), "hold " + path);
    return {path, Object(handle), bytes};
}

std::int64_t stored_bytes(const Column& column) {
    if (const auto* strings = std::get_if<std::vector<std::string>>(&column.values)) {
        return static_cast<std::int64_t>(longest_of(*strings) * strings->size());
    }
    return std::visit(
        [](const auto& values) {
            return std::ssize(values) * static_cast<std::int64_t>(sizeof(values[0]));
        },
        column.values);
}

} // namespace

Unplaced make_table(const File& file, const Table& table, std::int64_t piece_bytes) {
    const Plist creation = timeless(H5P_GROUP_CREATE);
    const Group group(check(H5Gcreate_anon(file.handle(), creation.handle(), H5P_DEFAULT),
                            "create group " + table.path));
    std::int64_t bytes = 0;
    const std::int64_t rows =
        table.columns.empty() ? 0
                              : std::visit([](const auto& values) { return std::ssize(values); },
                                           table.columns.front().values);
    for (const Column& column : table.columns) {
        bytes += write_column(file, group, table, column, rows, piece_bytes);
    }
    for (const auto& [name, value] : table.attributes) {
        std::visit([&](const auto& any) { write_attribute(group.handle(), name, any); }, value);
    }
    return unplaced(table.path, group.handle(), bytes);
}

Unplaced make_text(const File& file, const Text& text) {
    const Type type = string_type(text.text.size());
    // HDF5 fails to fill a single element of more than 1 MiB; this one is written at once.
    const Dataset dataset =
        unplaced_dataset(file, {text.path, type.handle(), {}, "", "", {}, {}, false});
    check(
        H5Dwrite(dataset.handle(), type.handle(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.text.c_str()),
        "write " + text.path);
    return unplaced(text.path, dataset.handle(), std::ssize(text.text));
}

void place(const File& file, const Unplaced& made) {
    link(made.object.handle(), file.handle(), made.path, made.path);
}

void displace(const File& file, const std::string& path) {
    if (check(H5Lexists(file.handle(), path.c_str(), H5P_DEFAULT), "look for " + path) > 0) {
        check(H5Ldelete(file.handle(), path.c_str(), H5P_DEFAULT), "replace " + path);
        io::flush(file, "what replaced " + path);
    }
}

void create_roomy_group(const File& file, const std::string& path) {
    const Plist creation = timeless(H5P_GROUP_CREATE);
    check(H5Pset_link_phase_change(creation.handle(), roomy_links, roomy_links),
          "keep links in the header of " + path);
    check(H5Pset_est_link_info(creation.handle(), roomy_links, 24), "size the header of " + path);
    const Group created(
        check(H5Gcreate2(file.handle(), path.c_str(), H5P_DEFAULT, creation.handle(), H5P_DEFAULT),
              "create group " + path));
}

std::int64_t write_table(const File& file, const Table& table, std::int64_t piece_bytes) {
    create_groups(file, table.path);
    const Unplaced made = make_table(file, table, piece_bytes);
    place(file, made);
    return made.bytes;
}

std::int64_t write_text(const File& file, const Text& text) {
    create_groups(file, text.path);
    const Unplaced made = make_text(file, text);
    place(file, made);
    return made.bytes;
}

Dataset create_dataset(const File& file, const Layout& layout) {
    create_groups(file, layout.path);
    Dataset dataset = unplaced_dataset(file, layout);
    link(dataset.handle(), file.handle(), layout.path, layout.path);
    return dataset;
}

base::Bytes room_for(const std::vector<Table>& tables, const std::vector<Text>& texts) {
    // A header, a label's heap, the blocks that HDF5 takes metadata from: less than this for each.
    constexpr std::int64_t per_object = 4096;
    std::int64_t bytes = 8 * per_object;
    for (const Table& table : tables) {
        bytes += per_object;
        for (const auto& [name, value] : table.attributes) {
            const auto* text = std::get_if<std::string>(&value);
            bytes += 256 + (text != nullptr ? std::ssize(*text) : 0);
        }
        for (const Column& column : table.columns) {
            bytes += per_object + stored_bytes(column) + std::ssize(column.long_name);
        }
    }
    for (const Text& text : texts) {
        bytes += per_object + std::ssize(text.text);
    }
    return {bytes};
}

} // namespace foregather::io
