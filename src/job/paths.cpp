// SPDX-License-Identifier: Apache-2.0
// Every output against every input and every other output.
#include "paths.hpp"

#include <filesystem>
#include <vector>

#include <foregather/base/error.hpp>

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

} // namespace

void refuse_overlaps(const deck::Deck& deck, const std::string& deck_path) {
    const deck::Sections& s = deck.sections();
    const std::vector<Named> inputs = {{"the deck", deck_path},
                                       {"model.weights", s.model.weights},
                                       {"data.tokens", s.data.tokens}};
    std::vector<Named> outputs = {
        {deck.where("output.file"), s.output.file},
        {deck.where("output.file") + " while it is written", s.output.file + ".part"}};
    if (!s.output.log.empty()) {
        outputs.push_back({deck.where("output.log"), s.output.log});
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
