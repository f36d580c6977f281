// SPDX-License-Identifier: Apache-2.0
// A block of metadata is found by its own checksum: it begins with one of the format's signatures,
// and its last four bytes are the checksum of those before. Nothing else of the format is known
// here.
#include "coverage.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <foregather/io/h5.hpp>

// The format's checksum, which the library exports but does not declare.
extern "C" std::uint32_t H5_checksum_metadata(const void* data, std::size_t length,
                                              std::uint32_t initial);

namespace foregather::fuzz {

namespace {

using Datasets = std::vector<std::pair<std::string, Extent>>;

extern "C" herr_t note_dataset(hid_t root, const char* name, const H5O_info_t* facts, void* list) {
    if (facts->type == H5O_TYPE_DATASET) {
        const io::Dataset dataset(H5Dopen2(root, name, H5P_DEFAULT));
        const haddr_t offset = H5Dget_offset(dataset.handle());
        if (offset != HADDR_UNDEF) {
            static_cast<Datasets*>(list)->emplace_back(
                name, Extent{offset, offset + H5Dget_storage_size(dataset.handle())});
        }
    }
    return 0;
}

// HDF5 file format specification, version 3.0: superblock, headers, heap, B-tree. Those of a heap's
// free space (FSHD, FSSE) are left out: who reads does not look for room.
constexpr const char* signatures[] = {
    "\x89HDF\r\n\x1A\n", "OHDR", "OCHK", "FRHP", "FHIB", "FHDB", "BTHD", "BTIN", "BTLF"};

} // namespace

const char* name_of(Cover cover) {
    constexpr const char* names[] = {"metadata", "digested data", "other data", "unused room",
                                     "behind the end"};
    return names[static_cast<int>(cover)];
}

Coverage::Coverage(const std::string& path, const std::vector<std::string>& digested) {
    std::ifstream stream(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), {});
    of_byte_.assign(bytes_.size(), Cover::gap);
    find_datasets(path, digested);
    find_blocks();
    std::vector<Extent> of_digest;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
        const Cover cover = of_byte_[i];
        if (cover == Cover::metadata || cover == Cover::digest) {
            auto& list = cover == Cover::metadata ? aims_ : of_digest;
            list.push_back({i, i + 1});
        }
    }
    // As many entries for each byte as make the shares.
    const std::size_t quarter = aims_.size() / 2;
    for (std::size_t i = 0; i < quarter; ++i) {
        aims_.push_back(of_digest.empty() ? Extent{0, bytes_.size()}
                                          : of_digest[i % of_digest.size()]);
        aims_.push_back({0, bytes_.size()});
    }
}

void Coverage::set(std::size_t begin, std::size_t end, Cover cover) {
    std::fill(of_byte_.begin() + static_cast<std::ptrdiff_t>(begin),
              of_byte_.begin() + static_cast<std::ptrdiff_t>(end), cover);
}

void Coverage::find_datasets(const std::string& path, const std::vector<std::string>& digested) {
    const io::File file = io::open_input(path, "file");
    Datasets datasets;
    io::check(H5Ovisit(file.handle(), H5_INDEX_NAME, H5_ITER_INC, note_dataset, &datasets),
              "visit " + path);
    for (const auto& [name, extent] : datasets) {
        const bool covered = std::find(digested.begin(), digested.end(), name) != digested.end();
        set(extent.begin, extent.end, covered ? Cover::digest : Cover::payload);
    }
}

void Coverage::find_blocks() {
    for (std::size_t at = 0; at < bytes_.size(); ++at) {
        const std::string_view rest = std::string_view(bytes_).substr(at);
        const bool begins =
            of_byte_[at] == Cover::gap &&
            std::any_of(std::begin(signatures), std::end(signatures),
                        [&](std::string_view signature) { return rest.starts_with(signature); });
        for (std::size_t n = 8; begins && n + 4 <= rest.size(); ++n) {
            std::uint32_t stored = 0;
            std::memcpy(&stored, rest.data() + n, sizeof stored);
            if (H5_checksum_metadata(rest.data(), n, 0) == stored) {
                set(at, at + n + 4, Cover::metadata);
                at += n + 3;
                break;
            }
        }
    }
}

std::size_t Coverage::bytes_of(Cover cover) const {
    return static_cast<std::size_t>(std::count(of_byte_.begin(), of_byte_.end(), cover));
}

Cover Coverage::touched(const std::string& changed) const {
    if (changed.size() < bytes_.size()) {
        return Cover::metadata;
    }
    Cover least = changed.size() > bytes_.size() ? Cover::beyond : Cover::none;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
        if (changed[i] != bytes_[i]) {
            least = std::min(least, of_byte_[i]);
        }
    }
    return least;
}

} // namespace foregather::fuzz
