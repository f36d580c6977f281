// SPDX-License-Identifier: Apache-2.0
// Before the first step: where a run begins, and whether what it will write fits. Nothing is
// created here.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include <foregather/base/error.hpp>
#include <foregather/io/checkpoint_folder.hpp>

#include "checkpoints.hpp"
#include "memory_plan.hpp"

namespace foregather::job {
namespace {

namespace fs = std::filesystem;

std::string newest_in(const std::string& directory) {
    return directory.empty()
               ? ""
               : io::checkpoint_before(directory, std::numeric_limits<std::int64_t>::max());
}

bool same_folder(const fs::path& a, const fs::path& b) {
    std::error_code ignored; // what is not there is no folder of the other
    return fs::equivalent(a.empty() ? "." : a, b.empty() ? "." : b, ignored);
}

FoundStart newest_complete(const std::string& directory) {
    FoundStart start;
    if (directory.empty()) {
        return start;
    }
    io::FoundCheckpoint found = io::find_checkpoint(directory);
    for (const io::SkippedCheckpoint& skipped : found.skipped) {
        start.notes.push_back("skipped " + skipped.path + ": " + skipped.why);
    }
    start.path = std::move(found.path);
    start.notes.insert(start.notes.begin(),
                       start.path.empty()
                           ? "no complete checkpoint in " + directory + ": training starts anew"
                           : "training goes on from " + start.path);
    return start;
}

// A later run would take the newest for its own, or this one would write over it.
void refuse_foreign(const deck::CheckpointSection& section, const std::string& place,
                    const std::string& newest) {
    base::refuse(place + " = " + section.resume + ", but checkpoint.directory " +
                 section.directory +
                 " holds checkpoints that such a run does not go on from, the "
                 "newest " +
                 newest +
                 ": it would take their place. Set checkpoint.resume = auto to go on from the "
                 "newest, move them away, or name another directory");
}

FoundStart from_file(const deck::CheckpointSection& section, const std::string& place) {
    const std::string& path = section.resume;
    std::optional<io::Checkpoint> checkpoint;
    try {
        checkpoint.emplace(path);
    } catch (const base::Error& error) {
        base::refuse(place + " = " + path + " cannot be resumed: " + error.what());
    }
    const std::string newest = newest_in(section.directory);
    if (!newest.empty()) {
        const auto step = io::step_of_name(fs::path(newest).filename().string());
        const bool own = same_folder(fs::path(path).parent_path(), section.directory);
        if (!own || step.value_or(0) > checkpoint->state().step) {
            refuse_foreign(section, place, newest);
        }
    }
    return {path, {"training goes on from " + path}};
}

// The nearest folder above that is there.
std::string existing(fs::path folder) {
    std::error_code ignored;
    while (!folder.empty() && !fs::exists(folder, ignored)) {
        folder = folder.parent_path();
    }
    return folder.empty() ? "." : folder.string();
}

dev_t file_system_of(const std::string& folder) {
    struct stat facts {};
    return ::stat(folder.c_str(), &facts) == 0 ? facts.st_dev : dev_t{};
}

std::int64_t saves_of(const deck::Sections& s, std::int64_t from_step) {
    const std::int64_t every = s.checkpoint.every;
    if (s.checkpoint.directory.empty() || from_step >= s.train.steps) {
        return 0;
    }
    if (every == 0) {
        return 1;
    }
    return s.train.steps / every - from_step / every + (s.train.steps % every == 0 ? 0 : 1);
}

// The most that lie there at once, less those that do now: an old one goes after a new one came.
std::int64_t most_at_once(std::int64_t there, std::int64_t saves, std::int64_t keep) {
    if (saves == 0 || keep == 0) {
        return saves;
    }
    return std::max<std::int64_t>(1, std::min(there + saves - 1, keep) + 1 - there);
}

} // namespace

FoundStart look_for_start(const deck::CheckpointSection& section, const std::string& place) {
    if (section.resume == "auto") {
        return newest_complete(section.directory);
    }
    if (section.resume != "none") {
        return from_file(section, place);
    }
    if (const std::string newest = newest_in(section.directory); !newest.empty()) {
        refuse_foreign(section, place, newest);
    }
    return {};
}

StartFrom find_start(const deck::CheckpointSection& section, const std::string& place,
                     const mesh::Control& control) {
    FoundStart found;
    control.together([&] {
        if (control.first()) {
            found = look_for_start(section, place);
        }
    });
    StartFrom start;
    start.notes = std::move(found.notes);
    const std::string path = control.broadcast(found.path);
    if (!path.empty()) {
        control.together([&] {
            try {
                start.checkpoint.emplace(path);
            } catch (const base::Error& error) {
                throw base::Error(error.status(),
                                  std::string(error.what()) +
                                      "; it was there when this run looked "
                                      "for where to begin: is another run saving in that folder?");
            }
        });
    }
    return start;
}

void refuse_other_tensors(const io::Checkpoint& checkpoint,
                          const std::vector<base::TensorSpec>& tensors) {
    const io::WeightsFile stored = checkpoint.open(io::TensorSet::weights);
    std::string differ;
    for (const base::TensorSpec& tensor : tensors) {
        const io::StoredTensor* one = stored.find(tensor.name);
        if (one == nullptr || one->shape != tensor.shape) {
            differ +=
                "\n  " + tensor.name + (one == nullptr ? " is missing" : " has another shape");
        }
    }
    for (const io::StoredTensor& one : stored.tensors()) {
        if (std::none_of(tensors.begin(), tensors.end(),
                         [&](const auto& tensor) { return tensor.name == one.name; })) {
            differ += "\n  " + one.name + " is not a tensor of the model";
        }
    }
    if (!differ.empty()) {
        base::refuse(checkpoint.path() + " is a checkpoint of another model:" + differ);
    }
}

DiskPlan plan_disk(const deck::Sections& s, io::CheckpointContent content, base::Bytes results,
                   std::int64_t from_step) {
    DiskPlan plan;
    const std::string out = existing(fs::absolute(s.output.file).parent_path());
    plan.results = results;
    plan.room_for_results = io::free_room(out);
    plan.saves = saves_of(s, from_step);
    if (plan.saves == 0) {
        return plan;
    }
    const auto steps = static_cast<std::size_t>(s.train.steps);
    io::LossHistory& history = content.state.history;
    history = {std::vector<std::int64_t>(steps), std::vector<double>(steps),
               std::vector<double>(steps), std::vector<double>(steps),
               std::vector<std::int64_t>(steps)};
    const auto evaluations =
        s.train.evaluate_every > 0
            ? static_cast<std::size_t>(s.train.steps / s.train.evaluate_every) + 2
            : 2;
    content.state.evaluations = {std::vector<std::int64_t>(evaluations),
                                 std::vector<double>(evaluations),
                                 std::vector<std::int64_t>(evaluations)};
    plan.checkpoint = io::bytes_of(content);
    const std::string& directory = s.checkpoint.directory;
    plan.more = most_at_once(io::count_checkpoints(directory), plan.saves, s.checkpoint.keep);
    const std::string folder = existing(fs::absolute(directory));
    plan.room_for_checkpoints = io::free_room(folder);
    plan.one_disk = file_system_of(folder) == file_system_of(out);
    return plan;
}

std::vector<std::string> DiskPlan::lines() const {
    std::vector<std::string> text = {"results " + in_words(results) + ", free " +
                                     in_words(room_for_results)};
    text.push_back(saves == 0 ? "no checkpoint is written"
                              : "checkpoints " + std::to_string(saves) + " saves of " +
                                    in_words(checkpoint) + ", " + std::to_string(more) +
                                    " more at a time than now: " + in_words(checkpoints()) +
                                    ", free " + in_words(room_for_checkpoints) +
                                    (one_disk ? " (the same file system)" : ""));
    return text;
}

std::string DiskPlan::problem() const {
    const base::Bytes beside = one_disk ? results : base::Bytes{};
    if (room_for_results < results) {
        return "the results file needs " + in_words(results) + ", but its file system has only " +
               in_words(room_for_results) + " free";
    }
    if (saves > 0 && room_for_checkpoints < checkpoints() + beside) {
        return "this run's checkpoints need " + in_words(checkpoints()) + " (" +
               std::to_string(more) + " of " + in_words(checkpoint) + " at a time)" +
               (one_disk ? " beside " + in_words(results) + " of results" : "") +
               ", but their file system has only " + in_words(room_for_checkpoints) +
               " free: set a smaller checkpoint.keep or a larger checkpoint.every, or name "
               "another checkpoint.directory";
    }
    return "";
}

} // namespace foregather::job
