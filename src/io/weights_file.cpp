// SPDX-License-Identifier: Apache-2.0
// Walks the tensors' group once into a manifest, collecting every fault before it refuses; reads
// rows in pieces. Whether the tensors are those of a model is for the model room to judge.
#include <foregather/io/weights_file.hpp>

#include <algorithm>

#include "checksums.hpp"
#include "input_checks.hpp"

namespace foregather::io {

namespace {

constexpr base::Status refused = base::Status::refused;
// Deeper than any tensor's name; what is deeper is a group linked into itself.
constexpr int deepest = 16;
constexpr const char* maker = "tools/import_model";

extern "C" herr_t note_name(hid_t, const char* name, const H5L_info_t*, void* names) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
}

// In the order of the file, and sorted here: to hand them over in order, HDF5 1.10.8 makes a table,
// which it releases half made, by wild pointers, when it finds a large group damaged.
std::vector<std::string> names_in(const Group& group, const std::string& where) {
    std::vector<std::string> names;
    check(H5Literate(group.handle(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, note_name, &names),
          "list group " + where, refused);
    std::sort(names.begin(), names.end());
    return names;
}

std::string dotted(std::string path) {
    std::replace(path.begin(), path.end(), '/', '.');
    return path;
}

std::string slashed(std::string name) {
    std::replace(name.begin(), name.end(), '.', '/');
    return name;
}

// Collects tensors and faults below one group.
class Walk {
public:
    Walk(std::string root, std::int64_t file_bytes)
        : root_(std::move(root)), file_bytes_(file_bytes) {}

    // `below` is the path under the root, "" or ending in a slash.
    void into(const Group& group, const std::string& below, int depth) {
        if (depth > deepest) {
            fault(below, "is nested too deeply: a group is linked into itself");
            return;
        }
        for (const std::string& name : names_in(group, root_ + below)) {
            const std::string path = below + name;
            if (const std::string problem = link_problem(group.handle(), name); !problem.empty()) {
                fault(path, problem);
            } else if (name.find('.') != std::string::npos) {
                fault(path, "has a dot in its name; each part of a tensor's name is a group");
            } else {
                visit(group, name, path, depth);
            }
        }
    }

    std::vector<StoredTensor> tensors;
    std::vector<std::string> faults;

private:
    void fault(const std::string& path, const std::string& problem) {
        faults.push_back(root_ + path + " " + problem);
    }

    void visit(const Group& group, const std::string& name, const std::string& path, int depth) {
        const std::string full = root_ + path;
        const Object object(
            check(H5Oopen(group.handle(), name.c_str(), H5P_DEFAULT), "open " + full, refused));
        const H5I_type_t kind = H5Iget_type(object.handle());
        if (kind == H5I_GROUP) {
            const Group next(check(H5Gopen2(group.handle(), name.c_str(), H5P_DEFAULT),
                                   "open " + full, refused));
            into(next, path + "/", depth + 1);
        } else if (kind == H5I_DATASET) {
            const Dataset dataset(check(H5Dopen2(group.handle(), name.c_str(), H5P_DEFAULT),
                                        "open " + full, refused));
            add(dataset, path);
        } else {
            fault(path, "is neither a group nor a dataset");
        }
    }

    void add(const Dataset& dataset, const std::string& path) {
        const std::string full = root_ + path;
        const Type type(check(H5Dget_type(dataset.handle()), "read the type of " + full, refused));
        const std::optional<base::DType> stored = dtype_of(type.handle());
        const base::Shape shape = shape_of(dataset, full);
        if (!stored) {
            fault(path, "has type " + type_in_words(type.handle()) +
                            "; weights are float32, float16 or bfloat16, little-endian");
        } else if (shape.empty()) {
            fault(path, "is a single value, not an array");
        } else if (const std::string problem =
                       storage_problem(dataset, StorageRule::contiguous, file_bytes_);
                   !problem.empty()) {
            fault(path, problem);
        } else {
            tensors.push_back({dotted(path), shape, *stored});
        }
    }

    std::string root_; // "/weights/"
    std::int64_t file_bytes_;
};

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += "\n  " + line;
    }
    return text;
}

bool by_name(const StoredTensor& a, const std::string& name) { return a.name < name; }

} // namespace

WeightsFile::WeightsFile(const std::string& path, std::int64_t piece_bytes,
                         const std::string& group)
    : path_(path), group_("/" + group + "/"), piece_bytes_(piece_bytes),
      file_(path, "weights file", maker) {
    reading(path, [&] {
        file_.read([&] {
            read_root();
            read_manifest();
        });
    });
}

void WeightsFile::read_root() {
    const std::string name = "weights file " + path_;
    const std::string format = text_attribute(file_.handle(), "format", name).value_or("");
    if (format != "foregather.weights") {
        base::refuse(name + " has " +
                     (format.empty() ? "no attribute format" : "format \"" + format + "\"") +
                     "; \"foregather.weights\" is needed; make it with " + maker);
    }
    const auto version = integer_attribute(file_.handle(), "format_version", name);
    if (version != 1) {
        base::refuse(name + " has " +
                     (version ? "format_version " + std::to_string(*version)
                              : "no attribute format_version") +
                     "; this program reads version 1");
    }
    // Only checkpoints have this mark: a weights file is made in one go.
    if (integer_attribute(file_.handle(), "complete", name).value_or(1) != 1) {
        base::refuse(name + " is not complete: the run that wrote it ended before");
    }
    const Dataset config = open_input_dataset(file_.file(), path_, "config", file_.bytes());
    refuse_if_broken(config, path_ + ": /config", maker);
    config_sealed_ = is_sealed(config, path_ + ": /config");
    config_json_ = read_text(config, path_ + ": /config");
    source_ = text_attribute(file_.handle(), "source", name).value_or("");
    content_sha256_ = text_attribute(file_.handle(), "content_sha256", name).value_or("");
    if (const auto digest = text_attribute(file_.handle(), "tokenizer_sha256", name)) {
        tokenizer_sha256_ = *digest;
    } else if (const std::string tokenizer = read_tokenizer(); !tokenizer.empty()) {
        tokenizer_sha256_ = sha256_of_text(tokenizer);
    }
}

std::string WeightsFile::read_tokenizer() const {
    if (H5Lexists(file_.handle(), "tokenizer", H5P_DEFAULT) <= 0) {
        return "";
    }
    std::string text;
    file_.read([&] {
        const Dataset tokenizer =
            open_input_dataset(file_.file(), path_, "tokenizer", file_.bytes());
        refuse_if_broken(tokenizer, path_ + ": /tokenizer", maker);
        text = read_text(tokenizer, path_ + ": /tokenizer");
    });
    return text;
}

void WeightsFile::read_manifest() {
    const std::string root = group_.substr(0, group_.size() - 1);
    for (std::size_t end = root.find('/', 1);; end = root.find('/', end + 1)) {
        const std::string group = root.substr(0, end);
        if (const std::string problem = link_problem(file_.handle(), group); !problem.empty()) {
            base::refuse("weights file " + path_ + ": " + group + " " + problem);
        }
        if (end == std::string::npos) {
            break;
        }
    }
    const Group group(check(H5Gopen2(file_.handle(), root.c_str(), H5P_DEFAULT),
                            "open group " + root + " of " + path_, refused));
    Walk walk(group_, file_.bytes());
    walk.into(group, "", 0);
    if (!walk.faults.empty()) {
        base::refuse("weights file " + path_ + " cannot be used:" + joined(walk.faults));
    }
    tensors_ = std::move(walk.tensors);
    std::sort(tensors_.begin(), tensors_.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
}

const StoredTensor* WeightsFile::find(const std::string& name) const {
    const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name, by_name);
    return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

void WeightsFile::read_rows(const std::string& name, std::int64_t first_row, std::int64_t rows,
                            std::byte* out) {
    const StoredTensor* tensor = find(name);
    if (tensor == nullptr) {
        base::fail("weights file " + path_ + " has no tensor " + name);
    }
    const std::string full =
        path_ + ": " + (group_ == "/weights/" ? "tensor " + name : group_ + slashed(name));
    if (first_row < 0 || rows < 0 || first_row + rows > tensor->shape[0]) {
        base::fail("rows " + std::to_string(first_row) + " to " + std::to_string(first_row + rows) +
                   " were asked of " + full + ", which has " + std::to_string(tensor->shape[0]));
    }
    file_.read([&] { read_stored(*tensor, first_row, rows, out, full); });
}

void WeightsFile::read_stored(const StoredTensor& tensor, std::int64_t first_row, std::int64_t rows,
                              std::byte* out, const std::string& full) {
    const std::string inside = group_ + slashed(tensor.name);
    const Dataset dataset(
        check(H5Dopen2(file_.handle(), inside.c_str(), H5P_DEFAULT), "open " + full));
    const Type type(check(H5Dget_type(dataset.handle()), "read the type of " + full));
    Block block{base::Shape(tensor.shape.size(), 0), tensor.shape};
    block.start[0] = first_row;
    block.count[0] = rows;
    const std::int64_t bytes = base::size_of(tensor.type);
    for_each_piece(block, bytes, piece_bytes_, [&](const Block& piece, base::Elements position) {
        read_block(dataset, type.handle(), piece, out + position * bytes, full);
        bytes_read_.add(base::elements_of(piece.count) * bytes);
    });
}

} // namespace foregather::io
