// SPDX-License-Identifier: Apache-2.0
// A file that is read over time, and what it was when it was opened: HDF5 gives zeros for what lies
// beyond a file's end, so a file that is cut off meanwhile would be read as if it held them.
// It knows no layout of ours: weights_file, token_file and earlier do.
#pragma once

#include <cstdint>
#include <string>

#include <foregather/io/h5.hpp>

namespace foregather::io {

// What tells that a file is another one, or was written to. Not its times of reading or renaming.
struct FileFacts {
    std::uint64_t device = 0, inode = 0;
    std::int64_t bytes = 0;
    std::int64_t changed_s = 0, changed_ns = 0; // when its content was changed last

    friend bool operator==(const FileFacts&, const FileFacts&) = default;
};

class InputFile {
public:
    // Opens by open_input(), whose errors it throws.
    explicit InputFile(const std::string& path, const std::string& kind = "file",
                       const std::string& maker = "");

    const std::string& path() const { return path_; }
    const File& file() const { return file_; }
    hid_t handle() const { return file_.handle(); }
    std::int64_t bytes() const { return facts_.bytes; } // when it was opened
    const FileFacts& facts() const { return facts_; }   // when it was opened

    // Runs `work`, which reads from the file. Throws Error(failed) when the file is not what it was
    // when it was opened: nothing that was read counts then. Blocks for one look at the open file.
    template <class Work>
    void read(const Work& work) const {
        try {
            work();
        } catch (const base::Error&) {
            refuse_changed(); // the better reason
            throw;
        }
        refuse_changed();
    }

    // Throws that Error too where the file is another one than `earlier`, which this run has read.
    void refuse_other_than(const FileFacts& earlier) const;

private:
    FileFacts facts_now() const;
    void refuse_changed() const;

    std::string path_;
    File file_;
    FileFacts facts_;
};

// Throws that Error where another file than `earlier` has the name now, or it was changed. A file
// that is gone is for whoever opens it to tell.
void refuse_other_file(const std::string& path, const FileFacts& earlier);

} // namespace foregather::io
