// SPDX-License-Identifier: Apache-2.0
// Refuses values that cannot go together, or can do nothing, whatever the machine, model and build.
// What needs any of those is refused by the job.
#include "conflicts.hpp"

#include <algorithm>

#include "text.hpp"

namespace foregather::deck {

namespace {

const Setting& setting(const Deck& deck, std::string_view key) {
    return *std::find_if(deck.settings().begin(), deck.settings().end(),
                         [&](const Setting& s) { return s.key == key; });
}

std::string clash(const Deck& deck, std::string_view key, std::string_view other,
                  const std::string& reason) {
    const Setting& second = setting(deck, other);
    return deck.where(key) + " = " + printable(setting(deck, key).value) + " does not go with " +
           second.key + " = " + printable(second.value) + " (" +
           (second.where.empty() ? second.origin : second.where) + "): " + reason;
}

// Collects what is wrong.
class Found {
public:
    explicit Found(const Deck& deck) : deck_(deck) {}
    void refuse(bool wrong, std::string_view key, std::string_view other,
                const std::string& reason) {
        if (wrong) {
            all.push_back(clash(deck_, key, other, reason));
        }
    }
    void say(bool wrong, std::string_view key, const std::string& what) {
        if (wrong) {
            all.push_back(deck_.where(key) + what);
        }
    }
    std::vector<std::string> all;

private:
    const Deck& deck_;
};

void look_at_plan(const Sections& s, Found& found) {
    found.say(s.plan.machine.empty() && s.plan.measured.empty(), "plan.machine",
              ": a plan needs times; name a machine description here, or in plan.measured the "
              "results of a bench");
    found.refuse(!s.plan.machine.empty() && !s.plan.measured.empty(), "plan.machine",
                 "plan.measured", "times come from the one or from the other");
    found.say(s.output.existing == "resume", "output.existing",
              " = resume: a plan is made anew in seconds; set refuse or replace");
}

void look_at_data(const Sections& s, Found& found) {
    const bool trains = s.job.name == "train";
    found.say(s.data.window == 1, "data.window",
              std::string(" = 1 can ") + (trains ? "teach" : "score") +
                  " nothing: a token alone has no context; set 2 or more, or 0 for whole "
                  "documents");
    found.refuse(!trains && s.data.window > 1 && s.data.stride >= s.data.window, "data.stride",
                 "data.window",
                 "a stride of at most " + std::to_string(s.data.window - 1) +
                     " carries the token that the next window's first score needs");
    found.refuse(trains && !s.model.config.empty() && !s.model.weights.empty(), "model.config",
                 "model.weights",
                 "a weights file has a config of its own; take one of the two away");
    found.refuse(trains && s.train.schedule != "constant" &&
                     s.train.min_learning_rate > s.train.learning_rate,
                 "train.min_learning_rate", "train.learning_rate",
                 "train.schedule = " + s.train.schedule + " goes down to it");
}

// Files that are read must not be written.
void look_at_files(const Deck& deck, Found& found) {
    const Sections& s = deck.sections();
    const std::string overwritten = "it would be overwritten";
    std::vector<const char*> inputs = {"model.weights", "data.tokens"};
    if (s.job.name == "train") {
        inputs.insert(inputs.end(), {"model.config", "train.evaluate"});
    }
    if (s.job.name == "plan") {
        inputs = {"plan.model", "plan.machine", "plan.measured"};
    }
    for (const char* input : inputs) {
        for (const char* output : {"output.file", "output.log"}) {
            const std::string& path = setting(deck, output).expanded;
            found.refuse(!path.empty() && path == setting(deck, input).expanded, output, input,
                         overwritten);
        }
    }
    found.refuse(!s.output.log.empty() && s.output.log == s.output.file, "output.log",
                 "output.file", overwritten);
}

} // namespace

std::vector<std::string> conflicts(const Deck& deck) {
    const Sections& s = deck.sections();
    // Of a bench that lists transports the list decides, and comm.transport is inert.
    const bool listed = s.job.name == "bench" && !s.bench.transports.empty();
    const std::string transport = listed ? "auto" : s.comm.transport;
    Found found(deck);
    found.refuse(transport == "nccl" && s.device.kind == "host", "comm.transport", "device.kind",
                 "nccl moves the memory of GPUs; the host takes mpi or shared");
    found.refuse((transport == "mpi" || transport == "shared") && s.device.kind == "cuda",
                 "comm.transport", "device.kind", "cuda takes nccl");
    found.refuse(s.comm.link_rate_bytes_per_s > 0 && transport == "shared", "comm.link_rate",
                 "comm.transport",
                 "shared reads weights where they lie, so there is nothing to slow");
    found.refuse(s.output.require == "observed" && !s.output.timeline, "output.require",
                 "output.timeline", "without a timeline nothing is observed");
    if (s.job.name == "plan") {
        look_at_plan(s, found);
    }
    look_at_data(s, found);
    look_at_files(deck, found);
    return found.all;
}

} // namespace foregather::deck
