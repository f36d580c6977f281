// SPDX-License-Identifier: Apache-2.0
// HDF5's error stack as text with advice, and the property lists behind every open and create.
// It knows no layout of ours: weights_file, token_file and results_file do.
#include <foregather/io/h5.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include <foregather/base/moves.hpp>
#include <foregather/io/descriptor.hpp>

namespace foregather::io {

namespace {

int failed_closes = 0; // of files, on the main thread

extern "C" herr_t append_message(unsigned, const H5E_error2_t* entry, void* list) {
    auto& messages = *static_cast<std::vector<std::string>*>(list);
    if (entry->desc != nullptr && *entry->desc != '\0') {
        messages.emplace_back(entry->desc);
        // The time that some of them tell ends a line.
        std::replace(messages.back().begin(), messages.back().end(), '\n', ' ');
    }
    return 0;
}

// The innermost messages, which name the cause, and the outermost; the rest is the library's own
// way from one to the other.
std::string in_short(const std::vector<std::string>& messages) {
    constexpr std::size_t innermost = 3;
    std::string text;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        if (i < innermost || i + 1 == messages.size()) {
            text += (i == 0 ? "" : i > innermost ? "; ...; " : "; ") + messages[i];
        }
    }
    return text.empty() ? "no reason given" : text;
}

bool any_contains(const std::vector<std::string>& messages, const std::string& words) {
    return std::any_of(messages.begin(), messages.end(), [&](const std::string& message) {
        return message.find(words) != std::string::npos;
    });
}

std::string advice_for(const std::vector<std::string>& messages) {
    if (any_contains(messages, "lock file")) {
        // Of flock's reasons only this one tells of a lock that somebody holds.
        return any_contains(messages, "errno = " + std::to_string(EWOULDBLOCK) + ",")
                   ? "; another job has the file open for writing: wait until it has ended"
                   : "; the file system grants no file lock: set HDF5_USE_FILE_LOCKING=FALSE in "
                     "the environment of every rank";
    }
    if (any_contains(messages, "truncated file")) {
        return "; the file is shorter than its own header says: copy or write it again";
    }
    if (any_contains(messages, "write failed")) {
        return "; the file system may be full, over quota, or out of reach";
    }
    return "";
}

// HDF5 prints its stack by itself unless told not to; every rank would do so. Called before any
// open, and not before main: the library must not start ahead of MPI.
void silence() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

Plist access_properties(const std::string& path) {
    silence();
    return Plist(check(H5Pcreate(H5P_FILE_ACCESS), "create access properties for " + path));
}

Plist shared_access(const std::string& path, MPI_Comm comm) {
    Plist access = access_properties(path);
    check(H5Pset_fapl_mpio(access.handle(), comm, MPI_INFO_NULL), "choose MPI-IO for " + path);
    check(H5Pset_libver_bounds(access.handle(), H5F_LIBVER_V110, H5F_LIBVER_V110),
          "choose format 1.10 for " + path);
    return access;
}

} // namespace

void raise_h5(const std::string& attempted, base::Status status, base::Where where) {
    std::vector<std::string> messages;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, append_message, &messages);
    H5Eclear2(H5E_DEFAULT);
    throw base::Error(
        status, "HDF5 failed to " + attempted + ": " + in_short(messages) + advice_for(messages),
        where);
}

std::string library_version() {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned patch = 0;
    check(H5get_libversion(&major, &minor, &patch), "tell its version");
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

void close(File& file, const std::string& path) {
    // The owner is moved to where no destructor runs: H5Fclose ends the handle even when it fails.
    alignas(File) std::byte parked[sizeof(File)];
    const hid_t handle = (new (parked) File(std::move(file)))->handle();
    check(close_file(handle), "close " + path);
}

void flush(const File& file, const std::string& name) {
    const base::MayLast may_last;
    check(H5Fflush(file.handle(), H5F_SCOPE_GLOBAL), "flush " + name);
}

herr_t close_file(hid_t handle) noexcept {
    const base::MayLast may_last;
    const herr_t result = H5Fclose(handle);
    failed_closes += result < 0 ? 1 : 0;
    return result;
}

bool close_has_failed() noexcept { return failed_closes > 0; }

File open_input(const std::string& path, const std::string& kind, const std::string& maker) {
    const std::string advice = maker.empty() ? "" : "; make it with " + maker;
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) {
        base::refuse("cannot open " + kind + " " + path + ": " + std::strerror(errno));
    }
    if (!S_ISREG(facts.st_mode)) {
        base::refuse("cannot open " + kind + " " + path + ": not a regular file" + advice);
    }
    if (const Descriptor trial(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); !trial) {
        base::refuse("cannot open " + kind + " " + path + ": " + std::strerror(errno));
    }
    const Plist access = access_properties(path);
    check(H5Pset_fapl_sec2(access.handle()), "choose POSIX I/O for " + path);
    // What fails for another reason than permission is left to the opening, which knows of locks.
    if (H5Fis_hdf5(path.c_str()) == 0) {
        base::refuse("cannot open " + kind + " " + path +
                     ": not an HDF5 file, or its writer was killed before the first flush" +
                     advice);
    }
    return File(check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.handle()),
                      "open " + kind + " " + path, base::Status::refused));
}

File create_shared(const std::string& path, MPI_Comm comm) {
    const Plist access = shared_access(path, comm);
    const Plist creation = timeless(H5P_FILE_CREATE);
    return File(check(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.handle(), access.handle()),
                      "create " + path));
}

File open_shared(const std::string& path, MPI_Comm comm) {
    const Plist access = shared_access(path, comm);
    return File(check(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.handle()),
                      "open " + path + " for writing"));
}

Plist timeless(hid_t property_class) {
    silence();
    Plist properties(check(H5Pcreate(property_class), "create creation properties"));
    check(H5Pset_obj_track_times(properties.handle(), false), "leave out time stamps");
    return properties;
}

} // namespace foregather::io
