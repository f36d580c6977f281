// SPDX-License-Identifier: Apache-2.0
// A small token file and a job that stores made-up scores of it, on any number of ranks.
// What is expected of the stored file is told by the tests.
#pragma once

#include <cmath>
#include <limits>
#include <memory>

#include <foregather/io/results_file.hpp>

#include "h5_fixture.hpp"

namespace foregather::io::testing {

// A directory that all ranks share; collective.
class SharedDirectory {
public:
    explicit SharedDirectory(const mesh::Control& control) : control_(control) {
        if (control.first()) {
            directory_ = std::make_unique<Directory>();
        }
        path_ = control.broadcast(directory_ ? *directory_ / "" : "");
    }
    SharedDirectory(const SharedDirectory&) = delete;
    SharedDirectory& operator=(const SharedDirectory&) = delete;
    ~SharedDirectory() { control_.barrier(); }
    std::string operator/(const std::string& name) const { return path_ + name; }

private:
    const mesh::Control& control_;
    std::unique_ptr<Directory> directory_;
    std::string path_;
};

// Documents of 4, 0, 1, 3, 5 and 2 tokens; the last one is not run.
inline const std::vector<std::int64_t> offsets{0, 4, 4, 5, 8, 13, 15};
inline constexpr std::int64_t documents_run = 5;

inline void write_tokens(const std::string& path, bool with_bytes = true) {
    Writer file(path);
    file.integers("tokens", H5T_STD_U16LE, std::vector<std::int64_t>(15, 3));
    file.integers("offsets", H5T_STD_I64LE, offsets);
    if (with_bytes) {
        file.integers("bytes", H5T_STD_I64LE, {20, 0, 5, 15, 30, 9});
    }
    Type five(good(H5Tcopy(H5T_C_S1)));
    good(H5Tset_size(five.handle(), 5));
    good(H5Tset_strpad(five.handle(), H5T_STR_NULLPAD));
    const std::string ids("aaaaabb\0\0\0c\0\0\0\0dddd\0e\0\0\0\0f\0\0\0\0", 30);
    file.put("id", five.handle(), five.handle(), {6}, std::vector<char>(ids.begin(), ids.end()));
}

// The made-up score of token t; `broken` is a token whose score is infinite.
inline float made_up(std::int64_t token) { return -0.25F * static_cast<float>(token % 7 + 1); }

struct Scores {
    std::vector<float> logprob;
    std::vector<std::uint8_t> greedy;
    double nll = 0.0;
    std::int64_t scored = 0;
    std::uint8_t status = 1;
};
inline Scores scores_of(std::int64_t document, std::int64_t broken = -1) {
    Scores s;
    const auto d = static_cast<std::size_t>(document);
    for (std::int64_t t = offsets[d]; t < offsets[d + 1]; ++t) {
        const bool first = t == offsets[d];
        s.logprob.push_back(first         ? std::numeric_limits<float>::quiet_NaN()
                            : t == broken ? -std::numeric_limits<float>::infinity()
                                          : made_up(t));
        s.greedy.push_back(!first && t % 2 == 0 ? 1 : 0);
        if (!first) {
            s.nll -= static_cast<double>(s.logprob.back());
            ++s.scored;
            s.status = s.status == 2 || t == broken ? 2 : 0;
        }
    }
    return s;
}

// Writes document d, a pack of its own.
inline void write_document(ResultsFile& file, std::int64_t d, std::int64_t broken = -1) {
    const Scores s = scores_of(d, broken);
    file.write_score(offsets[static_cast<std::size_t>(d)], s.logprob, s.greedy);
    file.write_documents(d, {&s.nll, 1}, {&s.scored, 1}, {&s.status, 1});
    file.mark_pack(d);
}

// The share of this rank: documents handed round, last rank first.
inline void write_share(const mesh::Control& control, ResultsFile& file, std::int64_t broken = -1) {
    for (std::int64_t d = 0; d < documents_run; ++d) {
        if (control.size() - 1 - d % control.size() == control.rank()) {
            write_document(file, d, broken);
        }
    }
}

// Reads a whole dataset as numbers, by this process alone.
template <class T>
std::vector<T> all_of(const std::string& path, const std::string& name) {
    const File file = open_input(path, "file of a test");
    const Dataset dataset(good(H5Dopen2(file.handle(), name.c_str(), H5P_DEFAULT)));
    const Space space(good(H5Dget_space(dataset.handle())));
    std::vector<T> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.handle())));
    good(H5Dread(dataset.handle(), native_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
    return values;
}

// The stored bytes of a dataset of fixed-length strings.
inline std::string raw_text(const std::string& path, const std::string& name) {
    const File file = open_input(path, "file of a test");
    const Dataset dataset(good(H5Dopen2(file.handle(), name.c_str(), H5P_DEFAULT)));
    const Type type(good(H5Dget_type(dataset.handle())));
    std::string bytes(H5Dget_storage_size(dataset.handle()), '?');
    good(H5Dread(dataset.handle(), type.handle(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()));
    return bytes;
}

inline double number_attribute(const std::string& path, const std::string& object,
                               const std::string& name) {
    const File file = open_input(path, "file of a test");
    const Attribute attribute(good(
        H5Aopen_by_name(file.handle(), object.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT)));
    double value = 0.0;
    good(H5Aread(attribute.handle(), H5T_NATIVE_DOUBLE, &value));
    return value;
}

inline std::string string_attribute(const std::string& path, const std::string& object,
                                    const std::string& name) {
    const File file = open_input(path, "file of a test");
    const Object opened(good(H5Oopen(file.handle(), object.c_str(), H5P_DEFAULT)));
    return text_attribute(opened.handle(), name, object).value_or("(none)");
}

inline bool has_attribute(const std::string& path, const std::string& object,
                          const std::string& name) {
    const File file = open_input(path, "file of a test");
    return H5Aexists_by_name(file.handle(), object.c_str(), name.c_str(), H5P_DEFAULT) > 0;
}

} // namespace foregather::io::testing
