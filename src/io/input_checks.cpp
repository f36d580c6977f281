// SPDX-License-Identifier: Apache-2.0
// Reads links and creation properties, no data. Which datasets must pass is decided by the readers.
#include "input_checks.hpp"

#include <array>

namespace foregather::io {

namespace {

constexpr base::Status refused = base::Status::refused;

std::string filters_in_words(const Plist& creation, int filters) {
    std::string names;
    for (int i = 0; i < filters; ++i) {
        std::array<char, 64> name{};
        std::size_t values = 0;
        unsigned flags = 0, config = 0;
        check(H5Pget_filter2(creation.handle(), static_cast<unsigned>(i), &flags, &values, nullptr,
                             name.size() - 1, name.data(), &config),
              "read a filter", refused);
        names += (i == 0 ? "" : ", ") + std::string(name.data());
    }
    return names;
}

std::string external_in_words(const Plist& creation) {
    std::array<char, 256> name{};
    off_t offset = 0;
    hsize_t bytes = 0;
    check(H5Pget_external(creation.handle(), 0, name.size() - 1, name.data(), &offset, &bytes),
          "read the name of an external file", refused);
    return name.data();
}

std::string extent_problem(const Dataset& dataset, std::int64_t file_bytes) {
    const Space space(check(H5Dget_space(dataset.handle()), "read a shape", refused));
    const Type type(check(H5Dget_type(dataset.handle()), "read a type", refused));
    const auto points =
        check(H5Sget_simple_extent_npoints(space.handle()), "read a shape", refused);
    if (points == 0) {
        return "";
    }
    if (H5Dget_storage_size(dataset.handle()) == 0) {
        return "holds no data: it was created but never written";
    }
    const haddr_t offset = H5Dget_offset(dataset.handle());
    const auto bytes = static_cast<haddr_t>(points) * H5Tget_size(type.handle());
    if (offset != HADDR_UNDEF && offset + bytes > static_cast<haddr_t>(file_bytes)) {
        return "reaches beyond the end of the file (byte " + std::to_string(offset + bytes) +
               " of " + std::to_string(file_bytes) + "): the file is cut off or damaged";
    }
    return "";
}

} // namespace

std::string link_problem(hid_t group, const std::string& name) {
    if (check(H5Lexists(group, name.c_str(), H5P_DEFAULT), "look for " + name, refused) == 0) {
        return "is missing";
    }
    H5L_info_t link{};
    check(H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT), "read link " + name, refused);
    switch (link.type) {
    case H5L_TYPE_HARD:
        return "";
    case H5L_TYPE_SOFT:
        return "is a soft link; only data in their own place are read";
    case H5L_TYPE_EXTERNAL:
        return "is a link into another file; a file must hold its own data";
    default:
        return "is a user-defined link; only data in their own place are read";
    }
}

std::string storage_problem(const Dataset& dataset, StorageRule rule, std::int64_t file_bytes) {
    const Plist creation(
        check(H5Dget_create_plist(dataset.handle()), "read creation properties", refused));
    const H5D_layout_t layout = H5Pget_layout(creation.handle());
    check(static_cast<int>(layout), "read a layout", refused);
    if (layout == H5D_VIRTUAL) {
        return "is a virtual dataset: its data lie in other files";
    }
    if (check(H5Pget_external_count(creation.handle()), "count external files", refused) > 0) {
        return "has its data in an external file, " + external_in_words(creation);
    }
    const int filters = check(H5Pget_nfilters(creation.handle()), "count filters", refused);
    if (filters > 0) {
        return "is stored through a filter (" + filters_in_words(creation, filters) +
               "); it must be stored plainly";
    }
    if (rule == StorageRule::contiguous && layout != H5D_CONTIGUOUS) {
        return std::string("has a ") + (layout == H5D_CHUNKED ? "chunked" : "compact") +
               " layout; it must be contiguous";
    }
    return extent_problem(dataset, file_bytes);
}

Dataset open_input_dataset(const File& file, const std::string& path, const std::string& name,
                           std::int64_t file_bytes) {
    const std::string full = path + ": /" + name;
    if (const std::string problem = link_problem(file.handle(), name); !problem.empty()) {
        base::refuse(full + " " + problem);
    }
    const Object object(
        check(H5Oopen(file.handle(), name.c_str(), H5P_DEFAULT), "open " + full, refused));
    if (H5Iget_type(object.handle()) != H5I_DATASET) {
        base::refuse(full + " must be a dataset");
    }
    Dataset dataset(
        check(H5Dopen2(file.handle(), name.c_str(), H5P_DEFAULT), "open " + full, refused));
    if (const std::string problem = storage_problem(dataset, StorageRule::any_plain, file_bytes);
        !problem.empty()) {
        base::refuse(full + " " + problem);
    }
    return dataset;
}

} // namespace foregather::io
