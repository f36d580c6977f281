// SPDX-License-Identifier: Apache-2.0
// Reads what is per document at once and checks it against itself; ids are streamed when asked.
// Which tokens are scored in which pack is decided elsewhere.
#include <foregather/io/token_file.hpp>

#include <algorithm>
#include <limits>
#include <optional>

#include "checksums.hpp"
#include "input_checks.hpp"

namespace foregather::io {

namespace {

constexpr std::int64_t ids_at_once = std::int64_t{1} << 20;
constexpr const char* maker = "tools/tokenize";

// A 1-D integer dataset of an input file.
struct Integers {
    Dataset dataset;
    std::int64_t length = 0;
    bool is_unsigned = false;
    std::string name;
};

Integers open_integers(const File& file, const std::string& path, const std::string& name,
                       std::int64_t file_bytes) {
    Integers opened;
    opened.name = path + ": /" + name;
    opened.dataset = open_input_dataset(file, path, name, file_bytes);
    const Type type(check(H5Dget_type(opened.dataset.handle()), "read the type of " + opened.name,
                          base::Status::refused));
    if (H5Tget_class(type.handle()) != H5T_INTEGER) {
        base::refuse(opened.name + " must hold integers, but has type " +
                     type_in_words(type.handle()));
    }
    const base::Shape shape = shape_of(opened.dataset, opened.name);
    if (shape.size() != 1) {
        base::refuse(opened.name + " must have one dimension, but has " +
                     std::to_string(shape.size()));
    }
    opened.length = shape[0];
    opened.is_unsigned = H5Tget_sign(type.handle()) == H5T_SGN_NONE;
    return opened;
}

std::vector<std::int64_t> all_of(const Integers& source) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(source.length));
    read_range(source.dataset, 0, base::View<std::int64_t>(values), source.name);
    return values;
}

[[noreturn]] void refuse_value(const std::string& name, std::int64_t index, std::int64_t value,
                               const std::string& why) {
    base::refuse(name + "[" + std::to_string(index) + "] is " + std::to_string(value) + ": " + why);
}

} // namespace

TokenFile::TokenFile(const std::string& path) : path_(path), file_(path, "token file", maker) {
    reading(path, [&] { file_.read([&] { read_all(); }); });
}

void TokenFile::read_all() {
    if (check(H5Lexists(file_.handle(), "tokens", H5P_DEFAULT), "look for /tokens of " + path_,
              base::Status::refused) == 0) {
        base::refuse(path_ + ": /tokens is missing, so this is no token file; make it with " +
                     maker);
    }
    Integers tokens = open_integers(file_.file(), path_, "tokens", file_.bytes());
    tokens_ = tokens.length;
    unsigned_ids_ = tokens.is_unsigned;
    tokens_dataset_ = std::move(tokens.dataset);
    read_offsets();
    read_per_document();
    open_ids();
    const std::string name = "token file " + path_;
    tokenizer_sha256_ = text_attribute(file_.handle(), "tokenizer_sha256", name).value_or("");
    content_sha256_ = text_attribute(file_.handle(), "content_sha256", name).value_or("");
    source_ = text_attribute(file_.handle(), "source", name).value_or("");
    vocab_size_ = integer_attribute(file_.handle(), "vocab_size", name).value_or(0);
}

void TokenFile::read_offsets() {
    const Integers stored = open_integers(file_.file(), path_, "offsets", file_.bytes());
    if (stored.length == 0) {
        base::refuse(stored.name + " is empty; it must hold one more entry than documents");
    }
    offsets_ = all_of(stored);
    if (offsets_.front() != 0) {
        refuse_value(stored.name, 0, offsets_.front(), "the first document must start at token 0");
    }
    for (std::size_t i = 1; i < offsets_.size(); ++i) {
        if (offsets_[i] < offsets_[i - 1]) {
            refuse_value(stored.name, static_cast<std::int64_t>(i), offsets_[i],
                         "below the entry before it, " + std::to_string(offsets_[i - 1]));
        }
    }
    if (offsets_.back() != tokens_) {
        refuse_value(stored.name, documents(), offsets_.back(),
                     "the last document must end with /tokens, which has " +
                         std::to_string(tokens_) + " entries");
    }
}

void TokenFile::read_per_document() {
    const auto read_optional = [&](const std::string& dataset, std::vector<std::int64_t>& values) {
        if (check(H5Lexists(file_.handle(), dataset.c_str(), H5P_DEFAULT), "look for /" + dataset,
                  base::Status::refused) == 0) {
            return false;
        }
        const Integers stored = open_integers(file_.file(), path_, dataset, file_.bytes());
        if (stored.length != documents()) {
            base::refuse(stored.name + " has " + std::to_string(stored.length) + " entries for " +
                         std::to_string(documents()) + " documents");
        }
        values = all_of(stored);
        const auto negative = std::find_if(values.begin(), values.end(),
                                           [](std::int64_t value) { return value < 0; });
        if (negative != values.end()) {
            refuse_value(stored.name, negative - values.begin(), *negative, "must not be negative");
        }
        return true;
    };
    read_optional("score_from", score_from_);
    has_bytes_ = read_optional("bytes", bytes_);
}

void TokenFile::open_ids() {
    if (check(H5Lexists(file_.handle(), "id", H5P_DEFAULT), "look for /id",
              base::Status::refused) == 0) {
        return;
    }
    const std::string name = path_ + ": /id";
    ids_ = open_input_dataset(file_.file(), path_, "id", file_.bytes());
    const Type type(
        check(H5Dget_type(ids_.handle()), "read the type of " + name, base::Status::refused));
    const H5T_class_t kind = H5Tget_class(type.handle());
    const bool fixed_string = kind == H5T_STRING && H5Tis_variable_str(type.handle()) == 0;
    if (!fixed_string && kind != H5T_INTEGER) {
        base::refuse(name + " must hold strings of fixed length or integers, but has type " +
                     type_in_words(type.handle()));
    }
    if (shape_of(ids_, name) != base::Shape{documents()}) {
        base::refuse(name + " must have one entry for each of " + std::to_string(documents()) +
                     " documents");
    }
}

std::int64_t TokenFile::score_from(std::int64_t d) const {
    return score_from_.empty()
               ? 1
               : std::max<std::int64_t>(1, score_from_[static_cast<std::size_t>(d)]);
}

std::string TokenFile::place_of(std::int64_t index) const {
    // The last document that starts at or before the index: empty ones before it are passed over.
    const auto next = std::upper_bound(offsets_.begin(), offsets_.end(), index);
    const std::int64_t document = next - offsets_.begin() - 1;
    return "document " + std::to_string(document) + ", token " +
           std::to_string(index - offsets_[static_cast<std::size_t>(document)]) + " in it";
}

// What is wrong with the first id outside [0, vocab), "" when there is none; feeds the digest, if
// there is one, with all of them in 64 bits.
template <class T>
std::string TokenFile::first_outside(std::int64_t vocab, Sha256* digest) const {
    std::vector<T> ids(static_cast<std::size_t>(std::min(ids_at_once, tokens_)));
    std::string fault;
    for (std::int64_t first = 0; first < tokens_; first += ids_at_once) {
        const base::View<T> part(ids.data(),
                                 static_cast<std::size_t>(std::min(ids_at_once, tokens_ - first)));
        read_range(tokens_dataset_, first, part, path_ + ": /tokens");
        if (digest != nullptr) {
            digest->add(part.data(), part.size() * sizeof(T));
        }
        const auto outside = std::find_if(part.begin(), part.end(), [vocab](T id) {
            return id < T{0} || id >= static_cast<T>(vocab);
        });
        if (fault.empty() && outside != part.end()) {
            const std::int64_t index = first + (outside - part.begin());
            fault = path_ + ": /tokens[" + std::to_string(index) + "] is " +
                    std::to_string(*outside) + " (" + place_of(index) +
                    "), but the vocabulary has " + std::to_string(vocab) + " ids, 0 to " +
                    std::to_string(vocab - 1) + ": were the tokens made for another model?";
        }
    }
    return fault;
}

void TokenFile::check_ids(std::int64_t vocab) const {
    reading(path_, [&] { file_.read([&] { check_content(vocab); }); });
}

void TokenFile::check_content(std::int64_t vocab) const {
    std::optional<Sha256> digest;
    if (!content_sha256_.empty()) {
        digest.emplace();
    }
    Sha256* const fed = digest ? &*digest : nullptr;
    // 64 bits of the stored sign hold every integer type: no value is clipped on the way.
    const std::string fault = unsigned_ids_ ? first_outside<std::uint64_t>(vocab, fed)
                                            : first_outside<std::int64_t>(vocab, fed);
    if (digest) { // before the fault: damaged tokens are not those of another model
        digest->add(offsets_.data(), offsets_.size() * sizeof(offsets_[0]));
        refuse_other_digest(path_ + ": /tokens with /offsets", digest->hexadecimal(),
                            "content_sha256", content_sha256_, maker);
    }
    for (const std::string& column : sealed_columns()) {
        refuse_if_broken(open_input_dataset(file_.file(), path_, column, file_.bytes()),
                         path_ + ": /" + column, maker);
    }
    if (!fault.empty()) {
        base::refuse(fault);
    }
}

std::vector<std::string> TokenFile::sealed_columns() const {
    std::vector<std::string> sealed;
    for (const char* column : {"score_from", "bytes", "id"}) {
        if (check(H5Lexists(file_.handle(), column, H5P_DEFAULT),
                  std::string("look for /") + column, base::Status::refused) > 0 &&
            is_sealed(open_input_dataset(file_.file(), path_, column, file_.bytes()),
                      path_ + ": /" + column)) {
            sealed.push_back(column);
        }
    }
    return sealed;
}

std::string TokenFile::sealed() const {
    std::string names = content_sha256_.empty() ? "" : "/tokens, /offsets";
    for (const std::string& column : sealed_columns()) {
        names += (names.empty() ? "/" : ", /") + column;
    }
    return names;
}

std::vector<std::int32_t> TokenFile::read(std::int64_t first, std::int64_t count) const {
    if (first < 0 || count < 0 || first + count > tokens_) {
        base::fail("tokens " + std::to_string(first) + " to " + std::to_string(first + count) +
                   " were asked of " + path_ + ", which has " + std::to_string(tokens_));
    }
    std::vector<std::int64_t> wide(static_cast<std::size_t>(count));
    file_.read([&] {
        read_range(tokens_dataset_, first, base::View<std::int64_t>(wide), path_ + ": /tokens");
    });
    std::vector<std::int32_t> ids(wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
        if (wide[i] < 0 || wide[i] > std::numeric_limits<std::int32_t>::max()) {
            refuse_value(path_ + ": /tokens", first + static_cast<std::int64_t>(i), wide[i],
                         "no vocabulary has such an id");
        }
        ids[i] = static_cast<std::int32_t>(wide[i]);
    }
    return ids;
}

} // namespace foregather::io
