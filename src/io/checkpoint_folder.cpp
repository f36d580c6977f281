// SPDX-License-Identifier: Apache-2.0
// Lists a folder, judges names and then files, removes. What a checkpoint holds is decided by
// checkpoint_file.hpp.
#include <foregather/io/checkpoint_folder.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <foregather/io/checkpoint_file.hpp>

#include "output_path.hpp"

namespace foregather::io {

namespace {

constexpr std::size_t digits = 8;
const std::string prefix = "step-", suffix = ".h5", temporary = ".part";

struct Entry {
    std::int64_t step = 0;
    bool part = false;
    std::string path;
};

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Newest first; of one step the temporary file last.
std::vector<Entry> entries_of(const std::string& directory) {
    std::vector<Entry> entries;
    std::error_code error;
    std::filesystem::directory_iterator at(directory, error);
    if (error == std::errc::no_such_file_or_directory) {
        return entries;
    }
    for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
        std::string name = at->path().filename().string();
        const bool part = ends_with(name, temporary);
        if (part) {
            name.resize(name.size() - temporary.size());
        }
        if (const auto step = step_of_name(name)) {
            entries.push_back({*step, part, at->path().string()});
        }
    }
    if (error) {
        base::refuse("cannot list checkpoints in " + directory + ": " + error.message());
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return a.step != b.step ? a.step > b.step : a.part < b.part;
    });
    return entries;
}

// Why an entry is not taken, "" if it can be.
std::string fault_of(const Entry& entry) {
    if (entry.part) {
        return "not complete: its save was interrupted, or is under way";
    }
    try {
        const Checkpoint checkpoint(entry.path);
        const std::int64_t step = checkpoint.state().step;
        return step == entry.step ? "" : "holds step " + std::to_string(step) + ", not its name's";
    } catch (const std::exception& error) { // of the standard library: the file vanished meanwhile
        return error.what();
    }
}

} // namespace

std::string checkpoint_name(std::int64_t step) {
    const std::string number = std::to_string(step);
    return prefix + std::string(digits - std::min(digits, number.size()), '0') + number + suffix;
}

std::optional<std::int64_t> step_of_name(const std::string& name) {
    if (name.rfind(prefix, 0) != 0 || !ends_with(name, suffix) ||
        name.size() < prefix.size() + digits + suffix.size()) {
        return std::nullopt;
    }
    std::int64_t step = 0;
    const char* begin = name.data() + prefix.size();
    const char* end = name.data() + name.size() - suffix.size();
    const auto [stop, error] = std::from_chars(begin, end, step);
    // Names that we do not give ("-1", nine digits with a zero in front) tell no step.
    return error == std::errc() && stop == end && checkpoint_name(step) == name
               ? std::optional(step)
               : std::nullopt;
}

Descriptor hold_checkpoints(const std::string& directory) {
    Descriptor held(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (held && ::flock(held.handle(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        base::refuse("another run is writing checkpoints into folder " + directory +
                     "; wait for its end, or name another folder");
    }
    return held;
}

void prepare_checkpoints(const std::string& directory) {
    if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) {
        base::refuse("cannot make folder " + directory +
                     " for checkpoints: " + std::strerror(errno));
    }
    // Permission bits tell nothing of read-only file systems, quotas or the superuser: trying does.
    std::string trial = directory + "/.trial-XXXXXX";
    const Descriptor created(::mkstemp(trial.data()));
    if (!created) {
        base::refuse("cannot create a checkpoint in folder " + directory + ": " +
                     std::strerror(errno));
    }
    ::unlink(trial.c_str());
    for (const Entry& entry : entries_of(directory)) {
        if (!std::filesystem::is_regular_file(entry.path)) {
            base::refuse(entry.path + " has the name of a checkpoint and is no file; remove it");
        }
    }
}

FoundCheckpoint find_checkpoint(const std::string& directory) {
    FoundCheckpoint found;
    for (const Entry& entry : entries_of(directory)) {
        std::string why = fault_of(entry);
        if (why.empty()) {
            found.path = entry.path;
            found.step = entry.step;
            break;
        }
        found.skipped.push_back({entry.path, std::move(why)});
    }
    return found;
}

std::int64_t count_checkpoints(const std::string& directory) {
    const std::vector<Entry> entries = entries_of(directory);
    return std::count_if(entries.begin(), entries.end(),
                         [](const Entry& entry) { return !entry.part; });
}

std::string checkpoint_before(const std::string& directory, std::int64_t step) {
    for (const Entry& entry : entries_of(directory)) {
        if (entry.step < step && !entry.part) {
            return entry.path;
        }
    }
    return "";
}

std::string remove_old_checkpoints(const std::string& directory, std::int64_t step,
                                   std::int64_t keep) {
    std::string left;
    std::int64_t kept = 1;
    for (const Entry& entry : entries_of(directory)) {
        if (entry.part || entry.step >= step || keep == 0 || kept++ < keep) {
            continue;
        }
        if (remove_file(entry.path) != 0) {
            left += (left.empty() ? "" : "; ") + ("cannot remove checkpoint " + entry.path) + ": " +
                    std::strerror(errno);
        }
    }
    return left;
}

void remove_interrupted(const std::string& directory, std::int64_t step) {
    for (const Entry& entry : entries_of(directory)) {
        if (!entry.part) {
            continue;
        }
        // Who writes one holds a lock on it. Where locks are not to be had, nobody can tell.
        const Descriptor file(::open(entry.path.c_str(), O_RDWR | O_CLOEXEC));
        const bool locked = file && ::flock(file.handle(), LOCK_EX | LOCK_NB) == 0;
        if (locked || (file && errno != EWOULDBLOCK && entry.step == step)) {
            static_cast<void>(remove_file(entry.path));
        }
    }
}

} // namespace foregather::io
