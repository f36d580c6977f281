// SPDX-License-Identifier: Apache-2.0
// Comparing by content: a file that was moved or copied is the same file.
#include "resume.hpp"

#include <algorithm>
#include <filesystem>

#include <foregather/base/error.hpp>

#include "model_files.hpp"

namespace foregather::job {
namespace {

// Keys that stand for themselves no longer: their content or what became of them is compared.
const std::vector<std::string> by_content = {"model.weights",   "data.tokens",      "device.kind",
                                             "device.products", "fsdp.param_dtype", "data.stride"};

void compare(const deck::Deck& deck, const std::string& path, const io::Earlier& earlier,
             const std::vector<io::IdentityRow>& identity, std::vector<std::string>& notes) {
    const auto refused = differences(earlier.identity, identity, false);
    if (!refused.empty()) {
        std::string text = deck.where("output.existing") + " = resume: " + path +
                           " was begun by another run, whose scores would differ:";
        for (const std::string& line : refused) {
            text += "\n  " + line;
        }
        base::refuse(text + "\n  set these back, or name another output.file");
    }
    for (const std::string& line : differences(earlier.identity, identity, true)) {
        notes.push_back("resumed with a change: " + line);
    }
}

} // namespace

std::vector<io::IdentityRow> identity_of(const deck::Deck& deck, const Inputs& inputs,
                                         const Machine& machine) {
    std::vector<io::IdentityRow> rows = {
        {"weights", content_of(*inputs.weights, true)},
        {"tokens", "sha256 " + inputs.tokens_sha256},
        {"packs", std::to_string(inputs.packs.packs.size())},
        {"device", machine.device},
        {"products", machine.products},
        {"type of weights", machine.weights_type},
        {"data.stride in force", std::to_string(inputs.packs.cut.stride)}};
    add_keys(rows, deck, by_content);
    add_versions(rows);
    return rows;
}

namespace {

// Submitted again, a run that ended badly ends as it did: whoever asks must not take it for done.
void take_end(Resume& resume, const deck::Deck& deck, const io::Earlier& whole,
              const std::string& path) {
    if (whole.not_finite_documents > 0) {
        resume.ended = base::Status::failed;
        resume.why = not_finite_text(whole.not_finite_documents, path);
        return;
    }
    if (!whole.not_honoured.empty()) {
        resume.ended = base::Status::not_honoured;
        resume.why = path + ": the run that made it did not honour";
        for (const std::string& key : whole.not_honoured) {
            resume.why += " " + key;
        }
    } else if (deck.sections().output.require == "observed" && whole.verdict != "observed") {
        resume.ended = base::Status::not_honoured;
        resume.why = deck.where("output.require") + " = observed: the verdict in " + path + " is " +
                     whole.verdict;
    }
}

} // namespace

std::string not_finite_text(std::int64_t documents, const std::string& path) {
    return std::to_string(documents) +
           " documents have a log-probability that is not finite: see /score/document_status of " +
           path + "; they are left out of the loss. Are the weights whole?";
}

Resume look_for_earlier(const deck::Deck& deck, const io::Output& output,
                        const std::vector<io::IdentityRow>& identity, std::int64_t packs,
                        bool publish) {
    namespace fs = std::filesystem;
    Resume resume;
    const std::string part = io::part_path(output.path);
    if (fs::exists(output.path)) {
        const io::Earlier whole = io::read_earlier(output.path);
        if (!whole.unusable.empty() || !whole.complete) {
            base::refuse(deck.where("output.existing") + " = resume: " + output.path +
                         " exists and is no complete results file" +
                         (whole.unusable.empty() ? "" : ": " + whole.unusable) +
                         "; move it away, or name another output.file");
        }
        compare(deck, output.path, whole, identity, resume.notes);
        resume.state = Resume::State::published;
        resume.notes = {output.path + " is complete already: there is nothing to resume"};
        take_end(resume, deck, whole, output.path);
        return resume;
    }
    if (!fs::exists(part)) {
        return resume;
    }
    io::Earlier earlier = io::read_earlier(part);
    if (earlier.foreign) {
        base::refuse(deck.where("output.existing") + " = resume: " + part +
                     " is an HDF5 file of something else; move it away, or name another "
                     "output.file");
    }
    if (!earlier.unusable.empty()) {
        resume.notes = {part + " cannot be resumed, so the run starts anew: " + earlier.unusable};
        return resume;
    }
    compare(deck, part, earlier, identity, resume.notes);
    if (std::ssize(earlier.packs_done) != packs) {
        base::refuse(part + " has marks for " + std::to_string(earlier.packs_done.size()) +
                     " packs, this run has " + std::to_string(packs));
    }
    if (earlier.complete) {
        if (publish) {
            io::publish_part(output);
        }
        resume.state = Resume::State::published;
        resume.notes = {part + " was complete: it is " + output.path + " now"};
        take_end(resume, deck, earlier, output.path);
        return resume;
    }
    resume.state = Resume::State::go_on;
    resume.packs_done = std::move(earlier.packs_done);
    resume.starts = std::move(earlier.starts);
    const auto done = std::count(resume.packs_done.begin(), resume.packs_done.end(), 1);
    resume.notes.insert(resume.notes.begin(), "resumed: " + std::to_string(done) + " of " +
                                                  std::to_string(packs) + " packs are in " + part);
    return resume;
}

void share(Resume& resume, const mesh::Control& control) {
    resume.state =
        static_cast<Resume::State>(control.broadcast(static_cast<std::int64_t>(resume.state)));
    const std::string marks =
        control.broadcast(std::string(resume.packs_done.begin(), resume.packs_done.end()));
    resume.packs_done.assign(marks.begin(), marks.end());
    resume.ended =
        static_cast<base::Status>(control.broadcast(static_cast<std::int64_t>(resume.ended)));
    resume.why = control.broadcast(resume.why);
}

std::vector<std::int64_t> packs_to_do(const Resume& resume, std::int64_t packs) {
    std::vector<std::int64_t> to_do;
    if (resume.state == Resume::State::published) {
        return to_do;
    }
    for (std::int64_t pack = 0; pack < packs; ++pack) {
        const auto at = static_cast<std::size_t>(pack);
        if (at >= resume.packs_done.size() || resume.packs_done[at] == 0) {
            to_do.push_back(pack);
        }
    }
    return to_do;
}

} // namespace foregather::job
