// SPDX-License-Identifier: Apache-2.0
// A weights file: what it holds, and rows of its tensors as stored. It refuses a file that is not
// in the format; whether the tensors are those of a model is for the model room to judge.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/io/digest.hpp>
#include <foregather/io/h5_data.hpp>
#include <foregather/io/input_file.hpp>

namespace foregather::io {

struct StoredTensor {
    std::string name; // Hugging Face name, with dots
    base::Shape shape;
    base::DType type;
};

class WeightsFile {
public:
    // Opens for reading, by this rank alone, and reads the manifest. Throws Error(refused) naming
    // file and all unusable datasets at once, or a text that is not that of its checksum. No read
    // will be larger than piece_bytes. `group` is where the tensors lie, with slashes: of a
    // checkpoint, moments can be read like weights.
    explicit WeightsFile(const std::string& path, std::int64_t piece_bytes = default_piece_bytes,
                         const std::string& group = "weights");

    const std::string& path() const { return path_; }
    std::int64_t file_bytes() const { return file_.bytes(); }
    const InputFile& input() const { return file_; }
    const std::string& config_json() const { return config_json_; } // text of /config
    // Whether a checksum in the file says so too.
    bool config_sealed() const { return config_sealed_; }

    const std::vector<StoredTensor>& tensors() const { return tensors_; } // sorted by name
    const StoredTensor* find(const std::string& name) const;              // null when there is none

    // Root attributes, "" where the file has none. The tokenizer's digest is the attribute, or,
    // without one, that of the text in /tokenizer.
    const std::string& tokenizer_sha256() const { return tokenizer_sha256_; }
    const std::string& content_sha256() const { return content_sha256_; }
    const std::string& source() const { return source_; }
    // The text of /tokenizer, "" where the file has none. Blocks.
    std::string read_tokenizer() const;

    // Rows [first_row, first_row + rows) of a tensor, as stored: out holds rows * (elements of a
    // row) * size_of(type) bytes. The rows of a 1-D tensor are its elements. Blocks. Throws
    // Error(failed) when the file is no longer what it was when it was opened.
    void read_rows(const std::string& name, std::int64_t first_row, std::int64_t rows,
                   std::byte* out);

    // Bytes handed out by read_rows so far; may be called from any thread.
    std::int64_t bytes_read() const { return bytes_read_.count(); }

private:
    void read_root();
    void read_manifest();
    void read_stored(const StoredTensor& tensor, std::int64_t first_row, std::int64_t rows,
                     std::byte* out, const std::string& full);

    std::string path_, group_; // "/weights/"
    std::int64_t piece_bytes_ = default_piece_bytes;
    bool config_sealed_ = false;
    InputFile file_;
    std::string config_json_, tokenizer_sha256_, content_sha256_, source_;
    std::vector<StoredTensor> tensors_;
    ByteCount bytes_read_;
};

} // namespace foregather::io
