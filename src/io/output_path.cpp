// SPDX-License-Identifier: Apache-2.0
// Asks the file system, before any work, whether results can be stored, and gives them their name
// at the end. What the file holds is decided by results_file.cpp.
#include "output_path.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include <foregather/base/moves.hpp>

namespace foregather::io {

namespace {

std::optional<struct stat> facts_of(const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 ? std::optional(facts) : std::nullopt;
}

// The file would take the place of the link, or of what it points to: neither is what it says.
void refuse_link(const std::string& path) {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode)) {
        std::error_code ignored; // it is gone again: then its target is not told
        base::refuse(path + " is a symbolic link to \"" +
                     std::filesystem::read_symlink(path, ignored).string() +
                     "\": results are not written through links; remove it, or name the file "
                     "itself as output.file");
    }
}

std::string reason() { return std::strerror(errno); }

// Does another process hold a lock on the file? Who only looks into it is waited for: a run that
// was requeued must not end for that.
bool is_held(int descriptor) {
    using namespace std::chrono_literals;
    for (const auto end = std::chrono::steady_clock::now() + 2s;;) {
        if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
            return false;
        }
        if (std::chrono::steady_clock::now() > end) {
            return true;
        }
        std::this_thread::sleep_for(20ms);
    }
}

} // namespace

std::string directory_of(const std::string& path) {
    const std::string directory = std::filesystem::path(path).parent_path().string();
    return directory.empty() ? "." : directory;
}

base::Bytes free_room(const std::string& directory) {
    struct statvfs space {};
    if (::statvfs(directory.c_str(), &space) != 0) {
        base::refuse("cannot ask for the free space of directory " + directory + ": " + reason());
    }
    return {static_cast<std::int64_t>(space.f_bavail * space.f_frsize)};
}

void sync_to_disk(const std::string& path, int flags) {
    const base::MayLast may_last;
    const Descriptor descriptor(::open(path.c_str(), flags | O_CLOEXEC));
    // Some network file systems refuse to sync a directory with EINVAL: their servers do it.
    if (!descriptor || (::fsync(descriptor.handle()) != 0 && errno != EINVAL)) {
        base::fail("cannot bring " + path + " to disk: " + reason());
    }
}

int remove_file(const std::string& path) noexcept {
    const base::MayLast may_last;
    return ::unlink(path.c_str());
}

int rename_file(const std::string& from, const std::string& to) noexcept {
    const base::MayLast may_last;
    return std::rename(from.c_str(), to.c_str());
}

void DescriptorCloser::operator()(int descriptor) const noexcept { ::close(descriptor); }

Descriptor claim(const std::string& part, bool there) {
    const int flags = O_RDWR | O_CLOEXEC | (there ? 0 : O_CREAT | O_EXCL);
    Descriptor claimed(::open(part.c_str(), flags, 0666));
    if (!claimed) {
        base::refuse((there ? "cannot open " : "cannot create ") + part + ": " + reason() +
                     "; is another run writing it?");
    }
    // Shared, so that whoever watches may read the file meanwhile. A file system without locks is
    // no reason to refuse: then two runs of one name are the user's to avoid.
    static_cast<void>(::flock(claimed.handle(), LOCK_SH | LOCK_NB));
    return claimed;
}

std::string part_path(const std::string& path) { return path + ".part"; }

void refuse_unusable(const Output& output) {
    if (output.path.empty()) {
        base::refuse("no results file is named: set output.file");
    }
    if (output.title.size() >= longest_attribute) {
        base::refuse("job.title has " + std::to_string(output.title.size()) +
                     " bytes; a title has less than " + std::to_string(longest_attribute));
    }
    const std::string part = part_path(output.path);
    refuse_link(output.path);
    refuse_link(part);
    const auto existing = facts_of(output.path), left_over = facts_of(part);
    if (existing && !S_ISREG(existing->st_mode)) {
        base::refuse("results file " + output.path + " exists and is not a regular file");
    }
    if (existing && !output.replace && !output.resume) {
        base::refuse("results file " + output.path + " exists: set output.existing = replace, or " +
                     "name another output.file");
    }
    if (left_over && !S_ISREG(left_over->st_mode)) {
        base::refuse(part + ", where results are collected, exists and is not a regular file");
    }
    // Permission bits tell nothing of read-only file systems, quotas or the superuser: trying does.
    const Descriptor trial(::open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    if (!trial) {
        base::refuse("cannot create " + part + " in directory " + directory_of(output.path) + ": " +
                     reason());
    }
    if (!left_over) {
        ::unlink(part.c_str());
    } else if (is_held(trial.handle())) {
        base::refuse(
            part + " is open in another process: a run that is writing it, or a reader; wait, or " +
            "name another output.file");
    }
}

void refuse_without_room(const Output& output, base::Bytes needed) {
    const std::string directory = directory_of(output.path);
    const auto left_over = facts_of(part_path(output.path));
    const std::int64_t free =
        free_room(directory).count + (left_over ? left_over->st_blocks * 512 : 0);
    if (free < needed.count) {
        base::refuse("results file " + output.path + " needs " + std::to_string(needed.count) +
                     " bytes, but directory " + directory + " has " + std::to_string(free) +
                     " bytes free");
    }
}

void reserve(const std::string& part, base::Bytes more) {
    const base::MayLast may_last; // where it has to write what it takes
    const Descriptor file(::open(part.c_str(), O_RDWR | O_CLOEXEC));
    const auto facts = facts_of(part);
    if (!file || !facts) {
        base::fail("cannot open " + part + ": " + reason());
    }
    const int error = ::posix_fallocate(file.handle(), facts->st_size, more.count);
    // A file system that cannot reserve is not one that has no room.
    if (error == 0 || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL) {
        return;
    }
    static_cast<void>(::ftruncate(file.handle(), facts->st_size));
    base::fail("no room for " + std::to_string(more.count) + " more bytes in " + part + ": " +
               std::strerror(error) + "; what was stored so far stays in it");
}

void publish(const Output& output) {
    const std::string part = part_path(output.path);
    const std::string kept = "; the results are complete in " + part;
    if (!output.replace && facts_of(output.path)) {
        base::fail("results file " + output.path + " came into being during the run" + kept);
    }
    sync_to_disk(part, O_RDONLY);
    if (rename_file(part, output.path) != 0) {
        base::fail("cannot rename " + part + " to " + output.path + ": " + reason() + kept);
    }
    sync_to_disk(directory_of(output.path), O_RDONLY | O_DIRECTORY);
}

} // namespace foregather::io
