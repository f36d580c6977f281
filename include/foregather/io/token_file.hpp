// SPDX-License-Identifier: Apache-2.0
// A token file: documents as ranges of one stream of ids. It refuses datasets that contradict each
// other or a vocabulary; which tokens are scored in which pack is decided elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <foregather/base/types.hpp>
#include <foregather/io/digest.hpp>
#include <foregather/io/h5_data.hpp>
#include <foregather/io/input_file.hpp>

namespace foregather::io {

class TokenFile {
public:
    // Opens for reading, by this rank alone; holds what is per document, nothing per token. Throws
    // Error(refused) naming file, dataset, index and value.
    explicit TokenFile(const std::string& path);

    const std::string& path() const { return path_; }
    std::int64_t file_bytes() const { return file_.bytes(); }
    std::int64_t tokens() const { return tokens_; }
    std::int64_t documents() const { return std::ssize(offsets_) - 1; }
    // [documents + 1], ascending, from 0 to tokens().
    const std::vector<std::int64_t>& offsets() const { return offsets_; }

    // The first token of document d that is scored, counted within the document: at least 1, as
    // nothing predicts a document's first token; at or beyond its length when nothing is scored.
    std::int64_t score_from(std::int64_t d) const;

    bool has_bytes() const { return has_bytes_; }
    // Bytes of document d's source text; only with has_bytes().
    std::int64_t bytes(std::int64_t d) const { return bytes_[static_cast<std::size_t>(d)]; }

    bool has_ids() const { return static_cast<bool>(ids_); }
    const Dataset& ids() const { return ids_; } // /id [documents]: fixed-length strings or integers

    // Root attributes, "" or 0 where the file has none.
    const std::string& tokenizer_sha256() const { return tokenizer_sha256_; }
    const std::string& content_sha256() const { return content_sha256_; }
    const std::string& source() const { return source_; }
    std::int64_t vocab_size() const { return vocab_size_; }

    // The datasets that checksums in the file cover: "/tokens, /offsets, /bytes, /id"; "": none.
    std::string sealed() const;

    // Reads every id once, in pieces, and what else has a checksum; blocks. Throws Error(refused)
    // where a checksum is that of other values, or at the first id outside [0, vocab), naming
    // dataset, index, document, position in it, value and limit.
    void check_ids(std::int64_t vocab) const;

    // Ids [first, first + count). Throws Error(refused) on an id that does not fit, Error(failed)
    // when the file is no longer what it was when it was opened.
    std::vector<std::int32_t> read(std::int64_t first, std::int64_t count) const;

private:
    template <class T>
    std::string first_outside(std::int64_t vocab, Sha256* digest) const;
    void read_all();
    void check_content(std::int64_t vocab) const;
    void read_offsets();
    void read_per_document();
    void open_ids();
    std::vector<std::string> sealed_columns() const;
    std::string place_of(std::int64_t index) const;

    std::string path_;
    std::int64_t tokens_ = 0;
    bool unsigned_ids_ = false;
    bool has_bytes_ = false;
    InputFile file_;
    Dataset tokens_dataset_, ids_;
    std::vector<std::int64_t> offsets_, score_from_, bytes_;
    std::string tokenizer_sha256_, content_sha256_, source_;
    std::int64_t vocab_size_ = 0;
};

} // namespace foregather::io
