// SPDX-License-Identifier: Apache-2.0
// Asks the system for the descriptor that HDF5 reads from, not for the path: who gives the name to
// another file has taken nothing from this one.
#include <foregather/io/input_file.hpp>

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace foregather::io {

namespace {

FileFacts facts_of(const struct stat& facts) {
    return {facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
}

void refuse_difference(const std::string& path, const FileFacts& before, const FileFacts& now) {
    if (before == now) {
        return;
    }
    std::string how = "was written to";
    if (now.device != before.device || now.inode != before.inode) {
        how = "was replaced by another file";
    } else if (now.bytes != before.bytes) {
        how = std::string("became ") + (now.bytes < before.bytes ? "shorter" : "longer") +
              " (from " + std::to_string(before.bytes) + " bytes to " + std::to_string(now.bytes) +
              ")";
    }
    base::fail(path + " " + how +
               " while this run read it, so what was read of it cannot be trusted; see that it is "
               "whole, let nobody change it during a run, and start again");
}

} // namespace

InputFile::InputFile(const std::string& path, const std::string& kind, const std::string& maker)
    : path_(path), file_(open_input(path, kind, maker)), facts_(facts_now()) {}

FileFacts InputFile::facts_now() const {
    void* descriptor = nullptr;
    check(H5Fget_vfd_handle(file_.handle(), H5P_DEFAULT, &descriptor),
          "tell the descriptor of " + path_);
    struct stat facts {};
    if (::fstat(*static_cast<const int*>(descriptor), &facts) != 0) {
        base::fail("cannot look at " + path_ + " while it is read: " + std::strerror(errno) +
                   "; was it removed, or its file system taken away?");
    }
    return facts_of(facts);
}

void InputFile::refuse_changed() const { refuse_difference(path_, facts_, facts_now()); }

void InputFile::refuse_other_than(const FileFacts& earlier) const {
    refuse_difference(path_, earlier, facts_);
}

void refuse_other_file(const std::string& path, const FileFacts& earlier) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) == 0) {
        refuse_difference(path, earlier, facts_of(facts));
    }
}

} // namespace foregather::io
