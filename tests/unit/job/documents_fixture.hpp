// SPDX-License-Identifier: Apache-2.0
// Token files of documents whose lengths a test chooses. What is made of them is the test's.
#pragma once

#include <memory>

#include <foregather/io/token_file.hpp>

#include "../io/h5_fixture.hpp"

namespace foregather::job {

using Ints = std::vector<std::int64_t>;
using io::testing::Directory;
using io::testing::Writer;

// Documents of these lengths, ids ascending from 0, and what is scored from where.
class Documents {
public:
    explicit Documents(const Ints& lengths, const Ints& score_from = {}) {
        Ints offsets{0}, ids;
        for (const std::int64_t length : lengths) {
            offsets.push_back(offsets.back() + length);
        }
        for (std::int64_t t = 0; t < offsets.back(); ++t) {
            ids.push_back(t);
        }
        {
            Writer file(path_);
            file.integers("tokens", H5T_STD_U32LE, ids);
            file.integers("offsets", H5T_STD_I64LE, offsets);
            if (!score_from.empty()) {
                file.integers("score_from", H5T_STD_I64LE, score_from);
            }
        }
        file_ = std::make_unique<io::TokenFile>(path_);
    }
    const io::TokenFile& file() const { return *file_; }

private:
    const Directory directory_;
    const std::string path_ = directory_ / "t.h5";
    std::unique_ptr<io::TokenFile> file_;
};

} // namespace foregather::job
