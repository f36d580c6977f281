// SPDX-License-Identifier: Apache-2.0
// Every output against every input and every other output.
#include "paths.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <foregather/base/error.hpp>
#include <foregather/io/checkpoint_folder.hpp>

#include "early_stop.hpp"

namespace foregather::job {
namespace {

namespace fs = std::filesystem;

struct Named {
    std::string what; // with its place
    std::string path;
};

bool same_file(const std::string& a, const std::string& b) {
    std::error_code ignored; // what cannot be looked at is compared by name
    if (fs::equivalent(a, b, ignored)) {
        return true;
    }
    const fs::path one = fs::weakly_canonical(fs::absolute(a, ignored), ignored);
    const fs::path other = fs::weakly_canonical(fs::absolute(b, ignored), ignored);
    return !one.empty() && one == other;
}

bool is_checkpoint_name(fs::path name) {
    if (name.extension() == ".part") {
        name.replace_extension();
    }
    return io::step_of_name(name.string()).has_value();
}

// What lies among a run's checkpoints under the name of one may be overwritten or removed by it.
void refuse_among_checkpoints(const deck::Deck& deck, const std::vector<Named>& files) {
    const std::string& directory = deck.sections().checkpoint.directory;
    for (const Named& file : files) {
        std::error_code ignored;
        const fs::path path = fs::weakly_canonical(fs::absolute(file.path, ignored), ignored);
        if (is_checkpoint_name(path.filename()) &&
            same_file(path.parent_path().string(), directory)) {
            base::refuse(file.what + " (" + file.path + ") lies in " +
                         deck.where("checkpoint.directory") + " = " + directory +
                         ", where this run may overwrite or remove it; give the run a folder of "
                         "its own");
        }
    }
}

// What the deck names to be read.
std::vector<Named> named_inputs(const deck::Deck& deck) {
    const deck::Sections& s = deck.sections();
    std::vector<Named> inputs = {{"model.weights", s.model.weights},
                                 {"data.tokens", s.data.tokens}};
    if (s.job.name == "train") {
        inputs.push_back({"model.config", s.model.config});
        inputs.push_back({"train.evaluate", s.train.evaluate});
    }
    if (s.job.name == "plan") {
        inputs.push_back({"plan.model", s.plan.model});
        inputs.push_back({"plan.machine", s.plan.machine});
        inputs.push_back({"plan.measured", s.plan.measured});
    }
    const auto empty = [](const Named& named) { return named.path.empty(); };
    inputs.erase(std::remove_if(inputs.begin(), inputs.end(), empty), inputs.end());
    return inputs;
}

} // namespace

void refuse_overlaps(const deck::Deck& deck, const std::string& deck_path) {
    const deck::Sections& s = deck.sections();
    std::vector<Named> inputs = named_inputs(deck);
    inputs.push_back({"the deck", deck_path});
    std::vector<Named> outputs = {
        {deck.where("output.file"), s.output.file},
        {deck.where("output.file") + " while it is written", s.output.file + ".part"}};
    if (s.job.name != "plan") {
        outputs.push_back({"the file that stops the run", EarlyStop::file_of(deck)});
    }
    if (!s.output.log.empty()) {
        outputs.push_back({deck.where("output.log"), s.output.log});
    }
    if (s.job.name == "train" && !s.checkpoint.directory.empty()) {
        std::vector<Named> files = inputs;
        files.insert(files.end(), outputs.begin(), outputs.end());
        refuse_among_checkpoints(deck, files);
        inputs.push_back({"the folder of checkpoint.directory", s.checkpoint.directory});
    }
    const std::string& resume = s.checkpoint.resume;
    if (s.job.name == "train" && resume != "auto" && resume != "none") {
        inputs.push_back({"checkpoint.resume", resume}); // may well lie among the run's checkpoints
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        std::vector<Named> others = inputs;
        others.insert(others.end(), outputs.begin(),
                      outputs.begin() + static_cast<std::ptrdiff_t>(i));
        for (const Named& other : others) {
            if (same_file(outputs[i].path, other.path)) {
                base::refuse(outputs[i].what + " (" + outputs[i].path + ") is the same file as " +
                             other.what + " (" + other.path +
                             "), which it would overwrite; give it a name of its own");
            }
        }
    }
}

} // namespace foregather::job
