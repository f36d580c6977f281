// SPDX-License-Identifier: Apache-2.0
// The life of step-<step>.h5.part: laid out by rank 0, filled by all with raw data only, completed
// and named by rank 0. Until it has its name nobody takes it for a checkpoint.
#include <foregather/io/checkpoint_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <foregather/io/checkpoint_folder.hpp>

#include "checkpoint_state.hpp"
#include "checksums.hpp"
#include "input_checks.hpp"
#include "keep_open.hpp"
#include "output_path.hpp"

namespace foregather::io {

struct CheckpointWriter::Shared {
    File file;
};

namespace {

std::string dataset_path(TensorSet set, std::string tensor) {
    std::replace(tensor.begin(), tensor.end(), '.', '/');
    return std::string("/") + group_of(set) + "/" + tensor;
}

std::vector<TensorSet> sets_of(const CheckpointContent& content) {
    return content.moments
               ? std::vector<TensorSet>(std::begin(all_tensor_sets), std::end(all_tensor_sets))
               : std::vector<TensorSet>{TensorSet::weights};
}

std::vector<Text> texts_of(const CheckpointContent& content) {
    std::vector<Text> texts{{"/config", content.config_json}, settings_of(content.state)};
    if (!content.tokenizer_json.empty()) {
        texts.push_back({"/tokenizer", content.tokenizer_json});
    }
    return texts;
}

void write_all(const File& file, const CheckpointContent& content) {
    const hid_t root = file.handle();
    write_attribute(root, "format", std::string("foregather.weights"));
    write_attribute(root, "format_version", std::int64_t{1});
    write_attribute(root, "source", content.source);
    if (!content.tokenizer_sha256.empty()) {
        write_attribute(root, "tokenizer_sha256", content.tokenizer_sha256);
    }
    write_attribute(root, "complete", std::int64_t{0});
    for (const Table& table : tables_of(content.state)) {
        write_table(file, table);
        for (const Column& column : table.columns) {
            seal(file, table.path + "/" + column.name);
        }
    }
    for (const Text& text : texts_of(content)) {
        write_text(file, text);
        seal(file, text.path);
    }
    const Type type = file_type(base::DType::f32);
    for (const TensorSet set : sets_of(content)) {
        for (const base::TensorSpec& tensor : content.tensors) {
            Layout layout{
                dataset_path(set, tensor.name), type.handle(), tensor.shape, "", "", {}, {}};
            layout.filled = false; // all of it is written before the file gets its name
            create_dataset(file, layout);
        }
    }
}

// Takes the room of a file that was laid out, so that a full disk is found out before writing.
void reserve_all(const std::string& part) {
    const Descriptor file(::open(part.c_str(), O_RDWR | O_CLOEXEC));
    struct stat facts {};
    if (!file || ::fstat(file.handle(), &facts) != 0) {
        base::fail("cannot open " + part + ": " + std::strerror(errno));
    }
    // A file system that cannot reserve is not one that has no room.
    if (::fallocate(file.handle(), 0, 0, facts.st_size) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS) {
        base::fail("no room for the " + std::to_string(facts.st_size) + " bytes of " + part + ": " +
                   std::strerror(errno));
    }
}

bool same_tensors(const std::vector<StoredTensor>& a, const std::vector<StoredTensor>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const StoredTensor& x, const StoredTensor& y) {
                          return x.name == y.name && x.shape == y.shape && x.type == y.type;
                      });
}

} // namespace

const char* group_of(TensorSet set) {
    switch (set) {
    case TensorSet::first_moment:
        return "optimizer/first_moment";
    case TensorSet::second_moment:
        return "optimizer/second_moment";
    case TensorSet::weights:
        break;
    }
    return "weights";
}

void CheckpointContent::take_origin(const WeightsFile& weights) {
    config_json = weights.config_json();
    tokenizer_json = weights.read_tokenizer();
    tokenizer_sha256 = weights.tokenizer_sha256();
    source = weights.source();
}

base::Bytes bytes_of(const CheckpointContent& content) {
    // A tensor's header, and those of the groups that only it may be in.
    constexpr std::int64_t per_tensor = 4096;
    base::Bytes bytes = room_for(tables_of(content.state), texts_of(content));
    const auto sets = static_cast<std::int64_t>(sets_of(content).size());
    for (const base::TensorSpec& tensor : content.tensors) {
        bytes += sets * (base::bytes_of(base::elements_of(tensor.shape), base::DType::f32) +
                         base::Bytes{per_tensor});
    }
    return bytes;
}

CheckpointWriter::CheckpointWriter(const mesh::Control& control, const std::string& directory,
                                   const CheckpointContent& content, std::int64_t piece_bytes)
    : control_(control), directory_(directory),
      path_((std::filesystem::path(directory) / checkpoint_name(content.state.step)).string()),
      part_path_(io::part_path(path_)), step_(content.state.step), piece_bytes_(piece_bytes),
      total_bytes_(bytes_of(content).count), tensors_(content.tensors) {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    guarded([&] {
        if (control_.first()) {
            lay_out(content);
        }
    });
    auto opened = std::make_unique<Shared>();
    try {
        guarded([&] { opened->file = open_shared(part_path_, control_.comm()); });
    } catch (...) {
        keep_open(std::move(opened)); // some ranks may not have it open
        throw;
    }
    shared_ = std::move(opened);
}

CheckpointWriter::~CheckpointWriter() {
    if (shared_) {
        keep_open(std::move(shared_)); // nobody knows what the other ranks do
        if (control_.first()) {
            static_cast<void>(remove_file(part_path_));
        }
    }
}

// Runs `work` together; on an error takes away what was begun, and says what is left.
void CheckpointWriter::guarded(const std::function<void()>& work) {
    try {
        control_.together(work);
    } catch (const mesh::AgreedError& error) {
        shared_.reset(); // all ranks are here
        std::string told;
        if (control_.first()) {
            if (claim_) { // else it is another run's
                static_cast<void>(remove_file(part_path_));
            }
            const std::string before = checkpoint_before(directory_, 1 + step_);
            told = "checkpoint " + path_ + " of up to " + std::to_string(total_bytes_) +
                   " bytes was not written: " + error.what() +
                   (before.empty() ? "; there is none before it"
                                   : "; the last complete one is " + before);
        }
        throw mesh::AgreedError(base::Status::failed, control_.broadcast(told), error.where());
    }
}

void CheckpointWriter::lay_out(const CheckpointContent& content) {
    remove_interrupted(directory_, step_);
    const std::int64_t free = free_room(directory_).count;
    if (free < total_bytes_) {
        base::fail("folder " + directory_ + " has only " + std::to_string(free) + " bytes free");
    }
    claim_ = claim(part_path_);
    File file = create_shared(part_path_, MPI_COMM_SELF);
    write_all(file, content);
    close(file, part_path_);
    reserve_all(part_path_);
}

void CheckpointWriter::fill(const std::function<void()>& work) { guarded(work); }

void CheckpointWriter::write(TensorSet set, const std::string& tensor, base::Elements first,
                             base::View<const float> values) {
    const std::string inside = dataset_path(set, tensor), full = part_path_ + ": " + inside;
    const auto at =
        std::lower_bound(tensors_.begin(), tensors_.end(), tensor,
                         [](const auto& one, const std::string& name) { return one.name < name; });
    const base::Elements n = std::ssize(values);
    if (!shared_ || at == tensors_.end() || at->name != tensor || first < 0 ||
        first + n > base::elements_of(at->shape)) {
        base::fail("elements " + std::to_string(first) + " to " + std::to_string(first + n) +
                   " were to be written to " + full + ", which has no place for them");
    }
    const Dataset dataset(
        check(H5Dopen2(shared_->file.handle(), inside.c_str(), H5P_DEFAULT), "open " + full));
    const Type type = file_type(base::DType::f32);
    const std::int64_t bytes = base::size_of(base::DType::f32);
    for_each_block(at->shape, {first, first + n}, [&](const Block& block, base::Elements begin) {
        for_each_piece(block, bytes, piece_bytes_, [&](const Block& piece, base::Elements more) {
            write_block(dataset, type.handle(), piece,
                        reinterpret_cast<const std::byte*>(values.data() + begin + more), full);
            bytes_written_.add(base::elements_of(piece.count) * bytes);
        });
    });
}

std::string CheckpointWriter::finish(std::int64_t keep) {
    guarded([&] { flush(shared_->file, part_path_); });
    guarded([&] { close(shared_->file, part_path_); });
    guarded([&] {
        if (control_.first()) {
            complete();
        }
    });
    std::string left;
    if (control_.first()) {
        try {
            left = remove_old_checkpoints(directory_, step_, keep);
        } catch (const base::Error& error) {
            left = error.what();
        }
    }
    shared_.reset();
    return control_.broadcast(left);
}

// Only now, when the data of every rank are on disk.
void CheckpointWriter::complete() {
    File file = open_shared(part_path_, MPI_COMM_SELF);
    overwrite_attribute(file.handle(), "complete", std::int64_t{1});
    close(file, part_path_);
    sync_to_disk(part_path_, O_RDONLY);
    if (rename_file(part_path_, path_) != 0) {
        base::fail("cannot rename " + part_path_ + ": " + std::strerror(errno));
    }
    sync_to_disk(directory_, O_RDONLY | O_DIRECTORY);
}

Checkpoint::Checkpoint(const std::string& path) : path_(path) {
    const WeightsFile weights(path);
    const InputFile& input = weights.input();
    facts_ = input.facts();
    reading(path, [&] {
        input.read([&] { state_ = read_state(input.file(), path, weights.file_bytes()); });
    });
    if (!integer_attribute(input.handle(), "complete", path)) {
        base::refuse(path + " has no attribute complete");
    }
    for (const StoredTensor& tensor : weights.tensors()) {
        if (tensor.type != base::DType::f32) {
            base::refuse(path + ": tensor " + tensor.name + " is " + base::name_of(tensor.type) +
                         "; checkpoints hold fp32");
        }
    }
    has_moments_ = link_problem(input.handle(), "optimizer").empty();
    for (const TensorSet set : {TensorSet::first_moment, TensorSet::second_moment}) {
        if (has_moments_ && !same_tensors(weights.tensors(), open(set).tensors())) {
            base::refuse(path + ": the tensors of /" + group_of(set) +
                         " are not those of /weights");
        }
    }
}

WeightsFile Checkpoint::open(TensorSet set, std::int64_t piece_bytes) const {
    // The state is that of the file which was checked.
    try {
        WeightsFile opened(path_, piece_bytes, group_of(set));
        opened.input().refuse_other_than(facts_);
        return opened;
    } catch (const base::Error&) {
        refuse_other_file(path_, facts_); // the better reason
        throw;
    }
}

} // namespace foregather::io
